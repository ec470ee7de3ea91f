"""How much faster one client's FairFAL query is than a plain one, and what memory a large query takes.

    python -m benchmarks.query                    # Fashion-MNIST with a long tail
    python -m benchmarks.query --synthetic        # random images of the same shape, no data set needed

The plain query is written step by step, as the method reads: uncertainties, pseudo-labels and gradient
embeddings each have a pass of their own over the images, which come one at a time as PIL objects through a
DataLoader; every C x D embedding is built, and selection walks over images in Python loops. Both queries must
select the same images. The ratio is printed for one thread and for the default number; the part of it that
comes from inference one image at a time, in as many passes as ours, stands beside it. The large query has 100
classes and 20,000 candidates with 256 features.
"""

import argparse
import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from PIL import Image
from threadpoolctl import threadpool_limits
from torch.utils.data import DataLoader, Dataset

from datasets.federated import DataSpec, federate
from datasets.randomness import generator, torch_generator
from fairfal_app.query import QueryInput, build_query_strategy, select
from fairfal_app.query.gradient import GradientEmbeddings, residuals
from fairfal_app.query.k_center import k_center
from learning.models import ImageClassifier, build_model
from learning.predict import Predictions, predict
from learning.train import TrainSettings, train_local
from learning.views import Normalisation

POOL, LABELLED, BUDGET, CLASSES, SEED = 1900, 143, 102, 10, 1
CANDIDATES, ANCHORS, QUOTA, MANY_CLASSES, FEATURES = 20_000, 5_000, 100, 100, 256
CPU = torch.device("cpu")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Site:
    """One client at a query: images uint8 (N, 1, 28, 28), labels of the labelled ones, and its two models."""

    pool: torch.Tensor
    labelled: torch.Tensor
    labels: np.ndarray
    normalisation: Normalisation
    global_model: ImageClassifier
    local_model: ImageClassifier


# ----------------------------------------------------------------------------------------------------
# The plain query
# ----------------------------------------------------------------------------------------------------


class PlainImages(Dataset[torch.Tensor]):
    """Images as PIL objects behind torchvision's transforms."""

    def __init__(self, images: torch.Tensor, normalisation: Normalisation) -> None:
        from torchvision import transforms  # late: its 0.15 GiB are no part of the large query

        self.images = [Image.fromarray(image) for image in images[:, 0].numpy()]
        self.transform = transforms.Compose(
            [transforms.ToTensor(), transforms.Normalize(normalisation.mean, normalisation.std)]
        )

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, position: int) -> torch.Tensor:
        image: torch.Tensor = self.transform(self.images[position])
        return image


def plain_predict(model: ImageClassifier, images: torch.Tensor, normalisation: Normalisation) -> Predictions:
    """Return predictions of images that go through the network one at a time."""
    model.eval()
    probabilities, features = [], []
    with torch.no_grad():
        for image in DataLoader(PlainImages(images, normalisation), batch_size=1):
            embedded = model.embed(image)
            probabilities.append(torch.softmax(model.head(embedded).double(), dim=1)[0].numpy())
            features.append(embedded[0].numpy())
    return Predictions(np.array(probabilities), np.array(features))


def plain_passes(site: "Site") -> QueryInput:
    """Return a query's input from a pass over the images for each quantity that the query needs."""

    def look(model: ImageClassifier, images: torch.Tensor) -> Predictions:
        return plain_predict(model, images, site.normalisation)

    look(site.global_model, site.pool)  # features behind the pseudo-labels
    look(site.global_model, site.labelled)  # features behind the prototypes
    inputs = query_input(site, look)  # uncertainties; features and probabilities behind the embeddings
    for pool_image in range(inputs.pool_size):
        label = int(inputs.pool_global.probabilities[pool_image].argmax())
        _plain_embedding(inputs.pool_global, pool_image, label)
    return inputs


def plain_fairfal(inputs: QueryInput, budget: int, kappa: float = 4.0) -> list[int]:
    """Return the positions that FairFAL selects by default, by loops over materialised embeddings."""
    scores, pool, labelled = inputs.scores.probabilities, inputs.pool_global, inputs.labelled_global
    classes, labels = inputs.num_classes, inputs.labels.tolist()
    entropies = [-sum(p * math.log(p) for p in row if p > 0) for row in scores.tolist()]

    sums: dict[int, np.ndarray] = {}
    for feature, label in zip(labelled.features.astype(float), labels, strict=True):
        unit = feature / max(float(np.linalg.norm(feature)), 1e-12)
        sums[label] = sums[label] + unit if label in sums else unit
    buckets: list[list[int]] = [[] for _ in range(classes)]
    for position, feature in enumerate(pool.features.astype(float)):
        cosines = {
            label: float(feature @ sums[label]) / max(float(np.linalg.norm(sums[label])), 1e-12)
            for label in sorted(sums)
        }
        buckets[max(cosines, key=lambda label: cosines[label])].append(position)

    quotas = _plain_quotas([len(bucket) for bucket in buckets], budget)
    chosen: list[int] = []
    for label, (bucket, quota) in enumerate(zip(buckets, quotas, strict=True)):
        shortlist = sorted(bucket, key=lambda i: -entropies[i])[: int(kappa * quota)]
        points = [
            _plain_embedding(pool, i, int(pool.probabilities[i].argmax())).astype(float) for i in shortlist
        ]
        anchors = [_plain_embedding(labelled, i, label) for i, true in enumerate(labels) if true == label]
        nearest = [min(float(((g - a) ** 2).sum()) for a in anchors) if anchors else math.inf for g in points]
        left = list(range(len(shortlist)))
        for _ in range(quota):
            pick = max(left, key=lambda i: nearest[i])
            left.remove(pick)
            chosen.append(shortlist[pick])
            for i in left:
                nearest[i] = min(nearest[i], float(((points[i] - points[pick]) ** 2).sum()))
    return sorted(chosen)


def _plain_embedding(predictions: Predictions, row: int, label: int) -> np.ndarray:
    residual = [-p for p in predictions.probabilities[row].tolist()]
    residual[label] += 1
    return np.array([[r * h for h in predictions.features[row].tolist()] for r in residual]).ravel()


def _plain_quotas(sizes: list[int], budget: int) -> list[int]:
    order = sorted(range(len(sizes)), key=lambda c: -sizes[c])
    quotas = [budget // len(sizes)] * len(sizes)
    for c in order[: budget % len(sizes)]:
        quotas[c] += 1
    excess = sum(max(0, quota - size) for quota, size in zip(quotas, sizes, strict=True))
    quotas = [min(quota, size) for quota, size in zip(quotas, sizes, strict=True)]
    while excess:
        for c in order:
            if excess and quotas[c] < sizes[c]:
                quotas[c] += 1
                excess -= 1
    return quotas


# ----------------------------------------------------------------------------------------------------
# The comparison
# ----------------------------------------------------------------------------------------------------


def make_site(synthetic: bool) -> Site:
    """Return one client with 1,900 pool images and 143 labels, and two models trained for a few epochs."""
    if synthetic:
        rng = generator(SEED, "benchmark images")
        labels = rng.integers(0, CLASSES, size=POOL + LABELLED)
        patterns = rng.integers(0, 256, size=(CLASSES, 1, 28, 28))
        noise = rng.integers(0, 256, size=(len(labels), 1, 28, 28))
        images = torch.from_numpy(((patterns[labels] + 3 * noise) // 4).astype(np.uint8))
        normalisation = Normalisation((0.5,), (0.25,))
    else:
        spec = DataSpec("fashion-mnist", "", 10, "dirichlet", 0.3, "exponential", 20.0, SEED)
        data = federate(spec)
        ids = data.pools[0][: POOL + LABELLED]
        images, labels = data.train.images[torch.from_numpy(ids)], data.train.labels[ids]
        normalisation = Normalisation(data.card.mean, data.card.std)
    models = []
    for purpose, epochs in (("global", 4), ("local", 8)):
        model = build_model("cnn4", 1, 28, CLASSES, torch_generator(SEED, "initial weights", purpose))
        settings = TrainSettings(
            epochs=epochs,
            batch_size=64,
            lr=0.01,
            momentum=0.9,
            weight_decay=1e-5,
            flip=False,
            precision="fp32",
        )
        order = torch_generator(SEED, "local training", purpose)
        train_local(model, images[:LABELLED], labels[:LABELLED], settings, normalisation, order, CPU)
        models.append(model)
    return Site(images[LABELLED:], images[:LABELLED], labels[:LABELLED], normalisation, *models)


def query_input(site: Site, look: Callable[[ImageClassifier, torch.Tensor], Predictions]) -> QueryInput:
    """Return everything that a query is given; ``look`` makes predictions of a model on images."""
    return QueryInput(
        pool_global=look(site.global_model, site.pool),
        pool_local=look(site.local_model, site.pool),
        labelled_global=look(site.global_model, site.labelled),
        labelled_local=look(site.local_model, site.labelled),
        labels=site.labels,
        query_model="local",
        gamma_mean=0.4,
    )


def best_of(repeats: int, work: Callable[[], Result]) -> tuple[float, Result]:
    """Return the least seconds of some repeats, and the result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def compare(site: Site, threads: str) -> None:
    """Time both queries, inference and selection apart, and print the ratios."""
    strategy, rng = build_query_strategy("fairfal"), generator(SEED, "query")
    looking, inputs = best_of(
        3, lambda: query_input(site, lambda model, images: predict(model, images, site.normalisation, CPU))
    )
    choosing, selection = best_of(3, lambda: select(strategy, inputs, BUDGET, rng))
    singly, _ = best_of(
        1, lambda: query_input(site, lambda model, images: plain_predict(model, images, site.normalisation))
    )
    plain_looking, plain_inputs = best_of(1, lambda: plain_passes(site))
    plain_choosing, positions = best_of(1, lambda: plain_fairfal(plain_inputs, BUDGET))
    assert selection.positions.tolist() == positions, "the two queries selected different images"
    rows = (
        ("same passes", looking, singly),
        ("all passes", looking, plain_looking),
        ("selection", choosing, plain_choosing),
        ("whole query", looking + choosing, plain_looking + plain_choosing),
    )
    for name, ours, plain in rows:
        print(f"{threads:>15}  {name:<12} {ours:8.3f} s   plain {plain:8.3f} s   ratio {plain / ours:6.1f}")


def large_query() -> None:
    """Run a k-center of 20,000 candidates with 100 classes and 256 features; print its time and memory."""
    rng = generator(SEED, "large query")

    def embeddings(count: int) -> GradientEmbeddings:
        probabilities = rng.dirichlet(np.full(MANY_CLASSES, 0.1), size=count)
        features = np.maximum(rng.normal(size=(count, FEATURES)), 0).astype(np.float32)
        return GradientEmbeddings.of(features, residuals(probabilities))

    before = _peak_memory()
    candidates, anchors = embeddings(CANDIDATES), embeddings(ANCHORS)
    seconds, picks = best_of(1, lambda: k_center(candidates, anchors, QUOTA))
    assert len(set(picks.tolist())) == QUOTA
    whole = (CANDIDATES + ANCHORS) * MANY_CLASSES * FEATURES * 8 / 2**30
    print(
        f"large query: {CANDIDATES} candidates, {ANCHORS} anchors, {QUOTA} picks in {seconds:.1f} s; "
        f"peak memory {_peak_memory():.2f} GiB, of which {before:.2f} GiB for the libraries; "
        f"materialised embeddings alone would take {whole:.0f} GiB"
    )


def _peak_memory() -> float:
    """Return the most memory that this process has held, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    """Run both parts; the large query goes first, as a process's peak memory never falls."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.query", description=__doc__)
    parser.add_argument("--synthetic", action="store_true", help="random images in place of Fashion-MNIST")
    arguments = parser.parse_args()
    large_query()
    site = make_site(arguments.synthetic)
    default = torch.get_num_threads()
    compare(site, f"{default} threads")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        compare(site, "1 thread")


if __name__ == "__main__":
    main()
