"""The device on which models are trained."""

import torch


def pick_device() -> torch.device:
    """Return the first CUDA device where there is one, the CPU otherwise."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
