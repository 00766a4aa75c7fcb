"""Loss, accuracy and AUC of a binary classifier's logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def score(logits: NDArray[np.float32], labels: NDArray[np.float32]) -> dict[str, float]:
    """Return mean log loss, accuracy at probability 0.5, and `auc` where both classes occur.

    Args:
        logits: shape (n,), n >= 1.
        labels: shape (n,), 0 or 1.
    """
    values = logits.astype(np.float64)
    truth = labels.astype(np.float64)
    # log(1 + e^z) - y z, written so that it does not overflow.
    losses = np.logaddexp(0.0, values) - truth * values
    metrics = {
        "loss": float(losses.mean()),
        "accuracy": float(((values > 0) == (truth > 0.5)).mean()),
    }
    area = area_under_curve(values, labels)
    return metrics if area is None else {**metrics, "auc": area}


def area_under_curve(scores: NDArray[np.float64], labels: NDArray[np.float32]) -> float | None:
    """Return the probability that a positive scores above a negative, ties counting half.

    The Mann-Whitney statistic over mean ranks (Hanley and McNeil 1982); None with one class.
    """
    positive = labels > 0.5
    positives = int(positive.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    mean_rank = last - (sizes - 1) / 2.0
    rank_sum = float(mean_rank[group][positive].sum())
    return (rank_sum - positives * (positives + 1) / 2.0) / (positives * negatives)
