import copy

import numpy as np
import pytest
import torch

import learning.train
from learning.arrays import to_arrays
from learning.errors import NonFiniteLossError
from learning.train import round_lr, train_local, train_local_only


def draws(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("rounds", "high"), [(100, 75), (2, 1), (3, 2), (4, 3), (1, 0), (7, 5)])
def test_rounds_with_the_base_rate(rounds, high):
    rates = [round_lr(0.01, index, rounds) for index in range(rounds)]
    assert rates == [0.01] * high + [0.01 * 0.1] * (rounds - high)


def test_other_decays():
    assert [round_lr(1.0, index, 4, decay=0.5, decay_at=0.5) for index in range(4)] == [1, 1, 0.5, 0.5]
    assert round_lr(1.0, 28, 100, decay_at=0.29) == 1.0
    assert round_lr(1.0, 99, 100, decay_at=1.0) == 1.0


def regression(pixels, labels, rates, momentum, weight_decay, mu):
    """Full-batch training of the pixel classifier in NumPy: weights, and the loss before each step."""
    start = np.array([[0.5, 0.1], [-0.25, 0.0]])
    inputs = np.stack([np.asarray(pixels) / 255 / 0.5 - 0.5, np.ones(len(pixels))], axis=1)
    targets = np.eye(2)[labels]
    weights, velocity, losses = start.copy(), 0.0, []
    for rate in rates:
        logits = inputs @ weights.T
        probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        losses.append(-np.log((probabilities * targets).sum(axis=1)).mean())
        gradient = (probabilities - targets).T @ inputs / len(pixels)
        gradient += weight_decay * weights + mu * (weights - start)
        velocity = momentum * velocity + gradient
        weights = weights - rate * velocity
    return weights, losses


def weights_of(model):
    return np.concatenate(
        [model.head.weight.detach().numpy(), model.head.bias.detach().numpy()[:, None]], axis=1
    )


@pytest.mark.parametrize("mu", [0.0, 0.01, 3.0])
def test_momentum_weight_decay_and_proximal_term_by_hand(pixel_classifier, make_settings, grey, cpu, mu):
    pixels, labels = [0, 100, 255], np.array([0, 1, 1])
    images = torch.tensor(pixels, dtype=torch.uint8).view(3, 1, 1, 1)
    settings = make_settings(epochs=4, lr=0.1, weight_decay=0.01, proximal_mu=mu)
    report = train_local(pixel_classifier, images, labels, settings, grey, draws(), cpu)
    weights, losses = regression(pixels, labels, [0.1] * 4, 0.9, 0.01, mu)
    assert weights_of(pixel_classifier) == pytest.approx(weights, abs=1e-5)
    assert report.loss == pytest.approx(losses[-1], abs=1e-6)
    assert report.steps == 4


@pytest.mark.parametrize(("count", "steps"), [(1, 1), (7, 1), (8, 1), (9, 2), (65, 9)])
def test_the_last_partial_batch_is_kept(make_model, make_images, make_settings, grey, cpu, count, steps):
    model = make_model()
    images, labels = make_images(count)
    report = train_local(model, images, labels, make_settings(epochs=2), grey, draws(), cpu)
    assert report.steps == 2 * steps
    assert np.isfinite(report.loss)
    assert all(np.isfinite(array).all() for array in to_arrays(model).values())


def test_loss_is_the_mean_over_images_not_over_batches(pixel_classifier, make_settings, grey, cpu):
    images = torch.tensor([0, 0, 255], dtype=torch.uint8).view(3, 1, 1, 1)
    labels = np.array([0, 0, 0])
    settings = make_settings(epochs=1, batch_size=2, lr=0.0)
    report = train_local(pixel_classifier, images, labels, settings, grey, draws(), cpu)
    _, (expected,) = regression([0, 0, 255], labels, [0.0], 0.9, 0.0, 0.0)
    assert report.loss == pytest.approx(expected, abs=1e-6)


def test_no_images_and_missing_labels_are_refused(make_model, make_images, make_settings, grey, cpu):
    images, labels = make_images(3)
    for train in (train_local, train_local_only):
        with pytest.raises(ValueError, match="0 images, 0 labels"):
            train(make_model(), images[:0], labels[:0], make_settings(), grey, draws(), cpu)
        with pytest.raises(ValueError, match="3 images, 2 labels"):
            train(make_model(), images, labels[:2], make_settings(), grey, draws(), cpu)


def test_one_class_trains(make_model, make_images, make_settings, grey, cpu):
    images, labels = make_images(10)
    report = train_local(make_model(), images, labels * 0, make_settings(epochs=4), grey, draws(), cpu)
    assert report.loss < 0.1


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_same_seed_same_bits(make_model, make_images, make_settings, grey, cpu, precision):
    images, labels = make_images(20, size=14)
    settings = make_settings(flip=True, precision=precision, proximal_mu=0.01)
    results = []
    for seed in (4, 4, 5):
        model = make_model(size=14)
        report = train_local(model, images, labels, settings, grey, draws(seed), cpu)
        results.append((report, to_arrays(model)))
    (first, arrays), (second, same), (_, other) = results
    assert first == second
    assert all(np.array_equal(arrays[name], same[name]) for name in arrays)
    assert not np.array_equal(arrays["head.weight"], other["head.weight"])


def test_labels_may_be_a_tensor(make_model, make_images, make_settings, grey, cpu):
    images, labels = make_images(9)
    reports = [
        train_local(make_model(), images, given, make_settings(), grey, draws(), cpu)
        for given in (labels, torch.from_numpy(labels), labels.astype(np.int32))
    ]
    assert reports[0] == reports[1] == reports[2]


def test_global_generators_and_inputs_stay_as_they_are(make_model, make_images, make_settings, grey, cpu):
    images, labels = make_images(9)
    before_images, before_labels = images.clone(), labels.copy()
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    train_local(make_model(), images, labels, make_settings(flip=True), grey, draws(), cpu)
    train_local_only(make_model(), images, labels, make_settings(flip=True), grey, draws(), cpu)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002
    assert torch.equal(images, before_images)
    assert np.array_equal(labels, before_labels)


def test_order_of_batches_is_that_of_the_generator(
    make_model, make_settings, make_images, grey, cpu, monkeypatch
):
    seen = []
    monkeypatch.setattr(learning.train, "normalise", lambda batch, _: seen.append(batch) or batch.float())
    images = torch.arange(5, dtype=torch.uint8).view(5, 1, 1, 1)
    model = make_model(size=1)
    train_local(model, images, np.zeros(5), make_settings(batch_size=2), grey, draws(3), cpu)
    generator = draws(3)
    expected = [torch.randperm(5, generator=generator).tolist() for _ in range(2)]
    assert [len(batch) for batch in seen] == [2, 2, 1] * 2
    assert torch.cat(seen).flatten().tolist() == expected[0] + expected[1]


def test_flips_mirror_about_half_of_the_images(pixel_classifier, make_settings, grey, cpu, monkeypatch):
    seen = []

    def first_column(batch, _):
        seen.append(batch)
        return batch[..., :1].float()

    monkeypatch.setattr(learning.train, "normalise", first_column)
    images = torch.tensor([0, 1], dtype=torch.uint8).expand(400, 1, 1, 2)
    train_local(
        pixel_classifier, images, np.zeros(400), make_settings(flip=True, epochs=1), grey, draws(), cpu
    )
    flipped = torch.cat(seen)[:, 0, 0, 0]
    assert 150 < int(flipped.sum()) < 250


def test_proximal_term_holds_the_weights_back(make_model, make_images, make_settings, grey, cpu):
    images, labels = make_images(24)
    moved = []
    for mu in (0.0, 1.0):
        model = make_model()
        start = copy.deepcopy(model)
        train_local(model, images, labels, make_settings(proximal_mu=mu), grey, draws(), cpu)
        pairs = zip(model.parameters(), start.parameters(), strict=True)
        moved.append(sum((now - then).detach().square().sum().item() for now, then in pairs))
    assert moved[1] < moved[0]


@pytest.mark.parametrize("train", [train_local, train_local_only])
def test_a_loss_that_is_not_finite_is_an_error(make_model, make_images, make_settings, grey, cpu, train):
    model = make_model()
    images, labels = make_images(9)
    with torch.no_grad():
        model.blocks[0].conv.weight[0] = torch.nan
    with pytest.raises(NonFiniteLossError, match="epoch 0, batch 0") as caught:
        train(model, images, labels, make_settings(lr=0.05), grey, draws(), cpu)
    assert (caught.value.lr, caught.value.epoch, caught.value.batch) == (0.05, 0, 0)


def test_the_batch_of_the_first_bad_loss_is_named(pixel_classifier, make_settings, grey, cpu):
    images = torch.full((4, 1, 1, 1), 255, dtype=torch.uint8)
    settings = make_settings(batch_size=1, lr=1e38)
    with pytest.raises(NonFiniteLossError) as caught:
        train_local(pixel_classifier, images, np.array([0, 1, 0, 1]), settings, grey, draws(), cpu)
    assert caught.value.epoch == 0
    assert caught.value.batch > 0


def test_bfloat16_keeps_float32_weights_and_learns(make_model, make_images, make_settings, grey, cpu):
    images, labels = make_images(48, size=14)
    losses = {}
    for precision in ("fp32", "bf16"):
        model = make_model(size=14)
        settings = make_settings(epochs=8, precision=precision)
        losses[precision] = train_local(model, images, labels, settings, grey, draws(), cpu).loss
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert losses["fp32"] < 0.3
    assert losses["bf16"] == pytest.approx(losses["fp32"], abs=0.1)


def test_local_only_stops_when_it_fits(make_model, make_images, make_settings, grey, cpu):
    images, labels = make_images(30, size=14)
    settings = make_settings(epochs=50, lr=0.01)
    report = train_local_only(make_model(size=14), images, labels, settings, grey, draws(), cpu)
    assert 1 <= report.epochs < 50
    assert report.accuracy >= 0.99


def test_local_only_decays_in_the_last_quarter_of_the_epochs(pixel_classifier, make_settings, grey, cpu):
    """Equal images with different labels cannot be fitted, so that every epoch is trained."""
    images = torch.full((2, 1, 1, 1), 255, dtype=torch.uint8)
    settings = make_settings(epochs=6, lr=0.1, weight_decay=0.01, proximal_mu=5.0)
    report = train_local_only(pixel_classifier, images, np.array([0, 1]), settings, grey, draws(), cpu)
    weights, _ = regression([255, 255], np.array([0, 1]), [0.1] * 4 + [0.01] * 2, 0.9, 0.01, mu=0.0)
    assert weights_of(pixel_classifier) == pytest.approx(weights, abs=1e-6)
    assert (report.epochs, report.accuracy) == (6, 0.5)


def rates_of_steps(monkeypatch, train):
    """Return the learning rate of each step of a training, as it stands in the optimiser."""
    rates = []
    step = torch.optim.SGD.step

    def record(self, *arguments):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", record)
    train()
    return rates


@pytest.mark.parametrize(
    ("changes", "rates"),
    [
        # 7 images in batches of 3 are 3 steps an epoch; of 4 epochs the last one is low: 9 + 3 steps.
        ({}, [1.0] * 9 + [0.1] * 3),
        ({"schedule": "epochs"}, [1.0] * 9 + [0.1] * 3),
        # floor(0.75 * 4) = 3 mini-batches at the base rate.
        ({"schedule": "steps"}, [1.0] * 3 + [0.1] * 9),
        # floor(0.5 * 4) = 2 epochs or mini-batches.
        ({"decay": 0.5, "decay_at": 0.5}, [1.0] * 6 + [0.5] * 6),
        ({"decay": 0.5, "decay_at": 0.5, "schedule": "steps"}, [1.0] * 2 + [0.5] * 10),
        ({"decay_at": 1.0}, [1.0] * 12),
        ({"decay_at": 1.0, "schedule": "steps"}, [1.0] * 4 + [0.1] * 8),
    ],
)
def test_schedules_of_the_local_only_model(
    pixel_classifier, make_settings, grey, cpu, monkeypatch, changes, rates
):
    images = torch.full((7, 1, 1, 1), 255, dtype=torch.uint8)  # equal images: every epoch is trained
    settings = make_settings(epochs=4, batch_size=3, lr=1.0)
    labels = np.array([0, 1, 0, 1, 0, 1, 0])

    def train():
        train_local_only(pixel_classifier, images, labels, settings, grey, draws(), cpu, **changes)

    assert rates_of_steps(monkeypatch, train) == pytest.approx(rates, rel=1e-12)


def test_published_step_schedule_is_low_after_37_steps(
    pixel_classifier, make_settings, grey, cpu, monkeypatch
):
    """102 labels in batches of 64 are 2 steps an epoch: 37 steps of 100 at the base rate, epoch 18.5."""
    images = torch.full((102, 1, 1, 1), 255, dtype=torch.uint8)
    settings = make_settings(epochs=50, batch_size=64, lr=0.01)

    def train():
        train_local_only(
            pixel_classifier, images, np.arange(102) % 2, settings, grey, draws(), cpu, schedule="steps"
        )

    assert rates_of_steps(monkeypatch, train) == pytest.approx([0.01] * 37 + [0.001] * 63, rel=1e-12)


def test_local_only_measures_the_images_as_they_are(
    make_model, make_images, make_settings, grey, cpu, monkeypatch
):
    measured = []
    real = learning.train.predict

    def spy(model, images, *rest):
        measured.append(images.clone())
        return real(model, images, *rest)

    monkeypatch.setattr(learning.train, "predict", spy)
    images, labels = make_images(9)
    report = train_local_only(make_model(), images, labels, make_settings(flip=True), grey, draws(), cpu)
    assert len(measured) == report.epochs
    assert all(torch.equal(some, images) for some in measured)


def test_local_only_trains_one_epoch_even_if_it_fits_at_once(
    make_model, make_images, make_settings, grey, cpu
):
    images, labels = make_images(3)
    model = make_model(classes=1)
    report = train_local_only(model, images, labels * 0, make_settings(), grey, draws(), cpu)
    assert (report.epochs, report.accuracy) == (1, 1.0)
    assert model.blocks[0].norm.num_batches_tracked == 1
