"""Whether a run uses the GPU that there is."""

from collections.abc import Collection


def gpu_notice(server_has_gpu: bool, client_devices: Collection[str]) -> str | None:
    """Return what to tell when clients compute on a CPU beside a GPU; None where all is as it should be.

    In simulation a Ray worker sees no GPU unless the federation config gives it a share of one. Where clients
    are on other machines, the server's GPU says nothing of theirs, so this is for simulation alone.

    Parameters
    ----------
    server_has_gpu
        Whether PyTorch sees a GPU in the server's process.
    client_devices
        The device that each client told, such as ``"cpu"`` or ``"cuda:0 (NVIDIA H200)"``.
    """
    on_cpu = sum(not device.startswith("cuda") for device in client_devices)
    if not server_has_gpu or not on_cpu:
        return None
    who = "all clients train" if on_cpu == len(client_devices) else f"{on_cpu} clients train"
    return (
        f"there is a GPU, and {who} on the CPU: they were given no share of it. `rarefl run` gives them one; "
        'with flwr run it is --federation-config "... client-resources-num-gpus=0.25" for four at a time'
    )
