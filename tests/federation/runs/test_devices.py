import pytest

from federation.runs.devices import gpu_notice


@pytest.mark.parametrize(
    ("server_has_gpu", "devices", "said"),
    [
        (True, ["cpu", "cpu"], "all clients train on the CPU"),
        (True, ["cpu", "cuda:0 (NVIDIA H200)"], "1 clients train on the CPU"),
        (True, ["cuda:0 (NVIDIA H200)"] * 2, None),
        (False, ["cpu", "cpu"], None),
    ],
)
def test_a_gpu_that_is_not_used_is_told(server_has_gpu: bool, devices: list[str], said: str | None) -> None:
    notice = gpu_notice(server_has_gpu, devices)
    if said is None:
        assert notice is None
    else:
        assert notice is not None
        assert said in notice
