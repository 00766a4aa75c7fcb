"""Model, data and training: scikit-learn's 1797 digits of 8x8 pixels."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.norm = nn.BatchNorm1d(64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(nn.functional.relu(self.norm(self.fc1(x))))


def load_data(partition_id: int, num_partitions: int, batch_size: int):
    """Return the loaders of one partition: 80 % to train on, 20 % to test."""
    digits = load_digits()
    images = torch.tensor(digits.data / 16.0, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    # The same shuffle everywhere, then every num_partitions-th image.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(42))
    mine = order[partition_id::num_partitions]
    partition = TensorDataset(images[mine], labels[mine])
    generator = torch.Generator().manual_seed(42)
    train, test = random_split(partition, [0.8, 0.2], generator=generator)
    return (
        DataLoader(train, batch_size=batch_size, shuffle=True, drop_last=True),
        DataLoader(test, batch_size=256),
    )


def train(net: nn.Module, loader: DataLoader, epochs: int, lr: float, device: torch.device):
    net.to(device)
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    running_loss = 0.0
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            running_loss += loss.item()
    return running_loss / (epochs * len(loader))


def test(net: nn.Module, loader: DataLoader, device: torch.device):
    net.to(device)
    net.eval()
    correct, loss = 0, 0.0
    with torch.no_grad():
        for images, labels in loader:
            outputs, targets = net(images.to(device)), labels.to(device)
            loss += nn.functional.cross_entropy(outputs, targets, reduction="sum").item()
            correct += (outputs.argmax(1) == targets).sum().item()
    total = len(loader.dataset)
    return loss / total, correct / total
