"""The device on which models are trained."""

import torch


def pick_device() -> torch.device:
    """Return the first CUDA device where there is one, the CPU otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def device_name(device: torch.device) -> str:
    """Return ``"cpu"``, or ``"cuda:0 (NVIDIA H200)"`` with the number that this process knows."""
    if device.type != "cuda":
        return str(device)
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"cuda:{index} ({torch.cuda.get_device_name(index)})"
