"""What a site's file may look like, and what is said about one that cannot be used."""

import os

import numpy as np
import pandas as pd
import pytest

from fedward.client.recipes.tabular.settings import parse_settings
from fedward.client.recipes.tabular.standardising import site_statistics
from fedward.client.recipes.tabular.table import InvalidTable, load_table

CONFIG = {"target": "ill", "features": "age,bmi", "test-fraction": 0.0}


def load(path, **changes):
    return load_table(path, parse_settings({**CONFIG, **changes}))


def write(tmp_path, text, name="site.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def frame(rows=20):
    index = np.arange(rows)
    return pd.DataFrame({"bmi": index / 2, "ill": index % 4 == 0, "age": index, "name": "x"})


@pytest.mark.parametrize("name", ["site.csv", "site.CSV.gz", "site.parquet", "site.pq"])
def test_csv_and_parquet_hold_the_same_rows(tmp_path, name):
    path = tmp_path / name
    compression = "gzip" if name.endswith("gz") else None
    if "csv" in name.lower():
        frame().to_csv(path, index=False, compression=compression)
    else:
        frame().to_parquet(path)
    if compression:
        path = path.rename(tmp_path / "site.csv.gz")
    rows = load(path).training
    assert rows.features[3].tolist() == [3.0, 1.5]
    assert rows.labels[:5].tolist() == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert (rows.features.dtype, rows.labels.dtype) == (np.float64, np.float32)


def test_held_out_rows_are_per_class_and_the_same_each_time(tmp_path):
    path = tmp_path / "site.parquet"
    frame(40).to_parquet(path)
    first = load(path, **{"test-fraction": 0.2})
    again = load(path, **{"test-fraction": 0.2, "epochs": 3})
    other = load(path, **{"test-fraction": 0.2, "split-seed": 1})
    assert len(first.held_out.labels) == 8
    assert first.held_out.labels.sum() == 2
    assert first.held_out.features.tolist() == again.held_out.features.tolist()
    assert first.held_out.features.tolist() != other.held_out.features.tolist()
    together = np.concatenate([first.training.features[:, 0], first.held_out.features[:, 0]])
    assert sorted(together) == list(range(40))


def test_a_file_is_read_again_only_when_it_changed(tmp_path):
    path = write(tmp_path, "age,bmi,ill\n1,2,0\n3,4,1\n")
    first = load(path)
    assert load(path) is first
    write(tmp_path, "age,bmi,ill\n1,2,0\n3,5,1\n")
    os.utime(path, ns=(1, 1))
    assert load(path).training.features[1].tolist() == [3.0, 5.0]


@pytest.mark.parametrize(
    ("column", "positive", "expected"),
    [
        ("0,1,1", "", [0, 1, 1]),
        ("False,True,True", "", [0, 1, 1]),
        ("0.0,1.0,1.0", "", [0, 1, 1]),
        ("B,M,M", "M", [0, 1, 1]),
        ("1,2,2", 2, [0, 1, 1]),
        ("1,2,2", "2", [0, 1, 1]),
        ("1,2,2", 1, [1, 0, 0]),
        ("B,B,B", "M", [0, 0, 0]),
        ("1,1,1", "", [1, 1, 1]),
    ],
)
def test_labels_are_0_and_1_or_named_by_positive(tmp_path, column, positive, expected):
    rows = "".join(f"1,2,{value}\n" for value in column.split(","))
    path = write(tmp_path, "age,bmi,ill\n" + rows)
    assert load(path, positive=positive).training.labels.tolist() == expected


REFUSED = {
    "empty file": ("", "is not a table"),
    "no rows": ("age,bmi,ill\n", "has no rows"),
    "missing column": ("Age,bmi,ill\n1,2,0\n", "no column 'age' \\(nearest: 'Age'\\); it has 3"),
    "semicolons": ("age;bmi;ill\n1;2;0\n", "separated by commas"),
    "text": ("age,bmi,ill\n1,2,0\n1,tall,1\n1,short,1\n", "column 'bmi': row 2 and 1 more are no"),
    "infinity": ("age,bmi,ill\n1,inf,0\n", "column 'bmi': row 1 is infinite"),
    "no label": ("age,bmi,ill\n1,2,0\n1,2,\n", "target 'ill': row 2 is missing"),
    "three labels": ("age,bmi,ill\n1,2,0\n1,2,1\n1,2,2\n", "got values '0', '1', '2', expected 0"),
    "other labels": ("age,bmi,ill\n1,2,no\n1,2,yes\n", "setting 'positive'"),
    "ragged": ('age,bmi,ill\n1,2,0\n"1', "is not a table"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_cannot_be_used_is_refused_by_file_column_and_row(tmp_path, case):
    text, reason = REFUSED[case]
    path = write(tmp_path, text)
    with pytest.raises(InvalidTable, match=reason) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert caught.value.failure == "dataset-unreadable"
    assert "tall" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "positive"), [("a,b,c", "a"), ("a,b,b", "c"), ("0,1,2", 1), ("0,1,1", 2)]
)
def test_a_target_that_is_not_binary_is_refused(tmp_path, labels, positive):
    rows = "".join(f"1,2,{value}\n" for value in labels.split(","))
    path = write(tmp_path, "age,bmi,ill\n" + rows)
    with pytest.raises(InvalidTable, match="the target is binary"):
        load(path, positive=positive)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("absent.csv", "cannot be opened"), ("site.xlsx", "ends in .csv"), ("site.parquet", "table")],
)
def test_a_file_that_is_absent_or_of_another_kind_is_refused(tmp_path, name, reason):
    if name != "absent.csv":
        write(tmp_path, "age,bmi,ill\n1,2,0\n", name=name)
    with pytest.raises(InvalidTable, match=reason):
        load(tmp_path / name)


def test_a_folder_and_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "latin.csv").write_bytes(b"age,bmi,ill\n1,2,\xff\n")
    for name in ("folder.csv", "latin.csv"):
        with pytest.raises(InvalidTable):
            load(tmp_path / name)


def test_one_row_held_out_leaves_none_to_train_on(tmp_path):
    path = write(tmp_path, "age,bmi,ill\n1,2,0\n")
    with pytest.raises(InvalidTable, match="leave none to train on"):
        load(path, **{"test-fraction": 0.9})


def test_missing_features_count_as_the_columns_own_mean(tmp_path):
    path = write(tmp_path, "age,bmi,ill\n1,,0\n3,4,1\n")
    table = load(path)
    assert np.isnan(table.training.features[0, 1])
    metrics = site_statistics(table.training, settings=parse_settings(CONFIG), path=path)
    assert metrics == {
        "num-examples": 2,
        "feature-mean": [2.0, 4.0],
        "feature-mean-square": [5.0, 16.0],
    }


def test_a_column_without_any_value_is_refused(tmp_path):
    path = write(tmp_path, "age,bmi,ill\n1,,0\n3,,1\n")
    table = load(path)
    with pytest.raises(InvalidTable, match="'bmi': every training row is missing"):
        site_statistics(table.training, settings=parse_settings(CONFIG), path=path)


def test_pandas_3_nullable_and_decimal_columns_are_numbers(tmp_path):
    path = tmp_path / "site.parquet"
    data = pd.DataFrame(
        {
            "age": pd.array([1, None, 3], dtype="Int64"),
            "bmi": pd.array([True, False, True], dtype="boolean"),
            "ill": pd.array([0, 1, 1], dtype="Int8"),
        }
    )
    data.to_parquet(path)
    features = load(path).training.features
    assert np.isnan(features[1, 0])
    assert features[:, 1].tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timedelta64[ns]"])
def test_dates_are_not_taken_for_numbers(tmp_path, kind):
    path = tmp_path / "site.parquet"
    data = frame()
    data["age"] = data["age"].astype(kind)
    data.to_parquet(path)
    with pytest.raises(InvalidTable, match=r"column 'age': got .*, expected numbers"):
        load(path)


def test_numbers_kept_as_text_or_categories_are_numbers(tmp_path):
    path = tmp_path / "site.parquet"
    data = frame()
    data["age"] = data["age"].astype(str).astype("category")
    data["bmi"] = data["bmi"].astype(str)
    data.to_parquet(path)
    assert load(path).training.features[3].tolist() == [3.0, 1.5]
