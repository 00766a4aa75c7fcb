import numpy as np
import pytest
import torch

from fedward.client.training.determinism import seed_torch
from fedward.client.training.loops import TrainingSettings, train_epochs

GENERATOR = torch.Generator().manual_seed(1)
INPUTS = torch.randn(23, 4, generator=GENERATOR)
TARGETS = torch.randn(23, generator=GENERATOR)


def make_module():
    seed_torch(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


def squared(outputs, targets):
    return ((outputs.squeeze(1) - targets) ** 2).mean()


def train(module, **changes):
    settings = TrainingSettings(**{"epochs": 3, "batch_size": 5, "learning_rate": 0.1, **changes})
    return train_epochs(module, INPUTS, TARGETS, loss=squared, settings=settings)


def bits(module):
    return [p.detach().numpy().tobytes() for p in module.parameters()]


@pytest.mark.parametrize(
    "changes", [{}, {"momentum": 0.9}, {"weight_decay": 0.01}, {"momentum": 0.5, "weight_decay": 1}]
)
def test_the_steps_are_those_of_torchs_own_optimiser_to_the_bit(changes):
    ours, theirs = make_module(), make_module()
    seed_torch(9)
    train(ours, **changes)
    seed_torch(9)
    optimiser = torch.optim.SGD(theirs.parameters(), lr=0.1, **changes)
    for _ in range(3):
        for batch in torch.randperm(23).split(5):
            optimiser.zero_grad()
            squared(theirs(INPUTS[batch]), TARGETS[batch]).backward()
            optimiser.step()
    assert bits(ours) == bits(theirs)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    results = []
    for seed in (1, 1, 2):
        module = make_module()
        seed_torch(seed)
        train(module)
        results.append(bits(module))
    assert results[0] == results[1] != results[2]


def test_one_proximal_step_by_hand():
    # w = 2, received 2: at the start the pull is 0. Loss (w x - y)^2, x = 1, y = 0: gradient 4.
    # Step 1: w = 2 - 0.1 * 4 = 1.6.  Step 2: gradient 3.2 + mu (1.6 - 2) = 3.2 - 0.8 = 2.4.
    module = torch.nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.fill_(2.0)
    settings = TrainingSettings(epochs=2, batch_size=0, learning_rate=0.1, proximal_mu=2.0)
    x, y = torch.ones(1, 1), torch.zeros(1)
    loss = train_epochs(module, x, y, loss=squared, settings=settings)
    assert module.weight.item() == pytest.approx(1.6 - 0.24)
    assert loss == pytest.approx(1.6**2)


def test_the_loss_is_the_mean_over_rows_not_over_batches():
    module = torch.nn.Linear(4, 1)
    with torch.no_grad():
        module.weight.fill_(0.0)
        module.bias.fill_(0.0)
    loss = train(module, epochs=1, learning_rate=0.0)
    assert loss == pytest.approx(float((TARGETS**2).mean()), rel=1e-6)


def test_full_batch_draws_nothing_from_the_generator():
    seed_torch(3)
    before = torch.get_rng_state()
    train(torch.nn.utils.skip_init(torch.nn.Linear, 4, 1), batch_size=0)
    assert torch.equal(before, torch.get_rng_state())


def test_frozen_parameters_stay():
    module = make_module()
    module[0].requires_grad_(requires_grad=False)
    before = bits(module[0])
    train(module, weight_decay=0.1)
    assert bits(module[0]) == before
    assert np.isfinite(module[2].weight.detach().numpy()).all()
