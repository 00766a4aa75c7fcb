import numpy as np
import pytest
import torch

from fedward.client.errors import TaskFailed
from fedward.client.training.devices import choose_device
from fedward.client.training.tensors import (
    array_from_tensor,
    arrays_of,
    load_arrays,
    tensor_from_array,
)
from fedward.client.training.visibility import restrict_devices
from fedward.protocol.arrays import BFLOAT16
from fedward.protocol.documents import TaskFailure

TENSORS = [
    torch.tensor([1.5, -0.0, 3e38], dtype=torch.bfloat16),
    torch.zeros((0, 3), dtype=torch.bfloat16),
    torch.tensor(2.5, dtype=torch.bfloat16),
    torch.tensor(3),
    torch.zeros((0, 3)),
    torch.tensor([True, False]),
    torch.arange(6, dtype=torch.float16).reshape(2, 3).T,
    torch.arange(4, dtype=torch.uint8),
]


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}{tuple(t.shape)}")
def test_a_tensor_comes_back_with_dtype_shape_and_bits(tensor):
    array = array_from_tensor(tensor)
    assert array.shape == tuple(tensor.shape)
    again = tensor_from_array(array)
    assert again.dtype == tensor.dtype
    assert torch.equal(again, tensor)


def test_bfloat16_is_named_and_shares_no_memory():
    tensor = torch.ones(2, dtype=torch.bfloat16)
    array = array_from_tensor(tensor)
    tensor.zero_()
    assert array.dtype == BFLOAT16
    assert array.astype(np.float32).tolist() == [1.0, 1.0]


def test_a_module_with_integer_and_0d_buffers_round_trips():
    first, second = torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)
    first(torch.arange(12.0).reshape(4, 3))
    arrays = arrays_of(first)
    assert arrays["num_batches_tracked"].dtype == np.int64
    assert arrays["num_batches_tracked"].shape == ()
    load_arrays(second, arrays)
    for name, value in second.state_dict().items():
        assert torch.equal(value, first.state_dict()[name])


def test_arrays_of_another_model_are_refused_with_all_differences():
    with pytest.raises(ValueError, match=r"'weight': got \(1, 2\).*'bias': got none.*'x'"):
        load_arrays(torch.nn.Linear(3, 1), {"weight": np.zeros((1, 2)), "x": np.zeros(1)})


def test_read_only_arrays_are_copied_into_the_module():
    weight = np.ones((1, 2), dtype=np.float32)
    weight.flags.writeable = False
    module = torch.nn.Linear(2, 1, bias=False)
    load_arrays(module, {"weight": weight})
    assert module.weight.tolist() == [[1.0, 1.0]]


def test_an_absent_device_is_refused_by_name():
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in {"cpu", "cuda", "mps"}
    with pytest.raises(TaskFailed, match="'cuda:99'") as caught:
        choose_device("cuda:99")
    assert caught.value.failure is TaskFailure.RESOURCES


@pytest.mark.parametrize(
    ("requested", "before", "after", "name"),
    [
        ("auto", None, None, "auto"),
        ("cuda", None, None, "cuda"),
        ("cpu", None, "", "cpu"),
        ("mps", "0", "", "mps"),
        ("cuda:1", None, "1", "cuda"),
        ("cuda:1", "4,7", "7", "cuda"),
        ("cuda:2", "4,7", "4,7", "cuda:2"),
    ],
)
def test_unmodified_apps_see_only_the_requested_device(requested, before, after, name):
    environment = {} if before is None else {"CUDA_VISIBLE_DEVICES": before}
    assert restrict_devices(requested, environment) == name
    assert environment.get("CUDA_VISIBLE_DEVICES") == after
