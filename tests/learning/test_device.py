"""What devices are called."""

import pytest
import torch

from learning.device import device_name


def test_devices_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: f"GPU {index}")
    assert device_name(torch.device("cpu")) == "cpu"
    assert device_name(torch.device("cuda")) == "cuda:1 (GPU 1)"
    assert device_name(torch.device("cuda:0")) == "cuda:0 (GPU 0)"
