"""Speed of local training against the plain way, on the CPU: ``python -m benchmarks.training``.

The plain way is what a tutorial does with the same network and schedule: PIL images through torchvision's
transforms, a DataLoader, float32 in PyTorch's standard memory format, ReLU before pooling, SGD as it comes.
All ways start from the same weights and take turns, an epoch each, so that other load on the machine meets
all of them; the first turn only warms up. Flips and order of the images are drawn independently.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from datasets.randomness import generator, torch_generator
from learning.models import ImageClassifier, build_model
from learning.predict import Precision
from learning.train import TrainSettings, train_local
from learning.views import Normalisation

SIZE = 28
CLASSES = 10
BATCH = 64
LR, MOMENTUM, WEIGHT_DECAY = 0.01, 0.9, 1e-5
NORMALISATION = Normalisation(mean=(0.3,), std=(0.35,))


@dataclass
class Way:
    """One way to train: ``epoch`` trains for an epoch and returns its mean loss."""

    name: str
    epoch: Callable[[int], float]
    seconds: list[float] = field(default_factory=list)
    loss: float = float("nan")


class PlainImages(Dataset[tuple[Tensor, int]]):
    """Images as PIL objects behind torchvision's transforms."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images = [Image.fromarray(image) for image in images]
        self.labels = labels.tolist()
        self.transform = transforms.Compose(
            [
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(NORMALISATION.mean, NORMALISATION.std),
            ]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        return self.transform(self.images[position]), self.labels[position]


def digits(count: int) -> tuple[Tensor, np.ndarray]:
    """Return some of scikit-learn's digits, enlarged: uint8 (count, 1, 28, 28), and labels."""
    data = load_digits()
    chosen = generator(0, "benchmark images").choice(len(data.images), count, replace=False)
    small = torch.from_numpy(data.images[chosen]).unsqueeze(1) * (255 / 16)
    large = F.interpolate(small, size=(SIZE, SIZE), mode="bilinear")
    return large.round().to(torch.uint8), data.target[chosen].astype(np.int64)


def start() -> ImageClassifier:
    """Return the network with the weights that every way starts from."""
    return build_model("cnn4", 1, SIZE, CLASSES, torch_generator(0, "benchmark weights"))


def plain_way(images: Tensor, labels: np.ndarray) -> Way:
    """Return the tutorial's way."""
    layers: list[nn.Module] = []
    for channels in (1, 64, 64, 64):
        convolution = nn.Conv2d(channels, 64, kernel_size=3, padding=1)
        layers += [convolution, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, CLASSES))
    values = (value.contiguous() for value in start().state_dict().values())
    model.load_state_dict(dict(zip(model.state_dict(), values, strict=True)))
    loader = DataLoader(PlainImages(images[:, 0].numpy(), labels), BATCH, shuffle=True, num_workers=0)
    criterion = nn.CrossEntropyLoss()

    def epoch(_: int) -> float:
        optimiser = torch.optim.SGD(model.parameters(), LR, MOMENTUM, weight_decay=WEIGHT_DECAY)
        model.train()
        total = 0.0
        for inputs, targets in loader:
            optimiser.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimiser.step()
            total += loss.item() * len(targets)
        return total / len(labels)

    return Way("plain fp32", epoch)


def our_way(images: Tensor, labels: np.ndarray, precision: Precision) -> Way:
    """Return ``train_local``."""
    model = start()
    settings = TrainSettings(1, BATCH, LR, MOMENTUM, WEIGHT_DECAY, flip=True, precision=precision)

    def epoch(turn: int) -> float:
        draws = torch_generator(0, "benchmark order", turn)
        cpu = torch.device("cpu")
        return train_local(model, images, labels, settings, NORMALISATION, draws, cpu).loss

    return Way(f"rarefl {precision}", epoch)


def main() -> None:
    """Run the comparison and print its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of PyTorch (default: 1, as in a Ray actor)"
    )
    parser.add_argument(
        "--images", type=int, default=640, help="training images, at most 1797 (default: 640)"
    )
    parser.add_argument("--turns", type=int, default=9, help="timed epochs of each way (default: 9)")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    images, labels = digits(options.images)
    plain = plain_way(images, labels)
    ways = [plain, our_way(images, labels, "fp32"), our_way(images, labels, "bf16")]
    for turn in range(options.turns + 1):
        for way in ways:
            began = time.perf_counter()
            way.loss = way.epoch(turn)
            way.seconds.append(time.perf_counter() - began)

    print(
        f"cnn4, {options.images} images of {SIZE} x {SIZE}, batches of {BATCH}, threads: {options.threads}; "
        f"medians of {options.turns} epochs\n"
    )
    print(f"{'way':<14}{'images/s':>10}{'x plain':>10}{f'loss in epoch {options.turns + 1}':>22}")
    for way in ways:
        timed = list(zip(plain.seconds[1:], way.seconds[1:], strict=True))
        speed = options.images / statistics.median(own for _, own in timed)
        ratio = statistics.median(other / own for other, own in timed)
        print(f"{way.name:<14}{speed:>10.0f}{ratio:>10.2f}{way.loss:>22.4f}")


if __name__ == "__main__":
    main()
