"""Run by test_applications.py in an environment with pandas, Arrow and Dask: they read and write objects by name."""

from __future__ import annotations

import pickle

import dask.dataframe
import fsspec
import pandas
import pyarrow
import pyarrow.parquet
from rostrum.client import Agent, fs


def main() -> None:
    fs.register()
    options = {"wait": 0.2}
    frame = pandas.DataFrame({"x": range(1000), "y": ["a", "b"] * 500})
    with Agent() as agent:
        agent.add("sent.csv", frame.to_csv(index=False).encode())
    assert pandas.read_csv("rostrum://sent.csv", storage_options=options).equals(frame)
    frame.to_parquet("rostrum://t.parquet", storage_options=options)
    assert pandas.read_parquet("rostrum://t.parquet", storage_options=options).x.sum() == frame.x.sum()
    system = fsspec.filesystem("rostrum", **options)
    assert pyarrow.parquet.read_table("t.parquet", filesystem=system).num_rows == 1000
    assert pyarrow.py_buffer(system.memory("sent.csv")).size == system.size("sent.csv")
    assert dask.dataframe.read_csv("rostrum://sent.csv", storage_options=options).x.sum().compute() == frame.x.sum()
    read = dask.dataframe.read_parquet("rostrum://t.parquet", storage_options=options)
    assert read.x.sum().compute(scheduler="processes", num_workers=1) == frame.x.sum()

    assert system.exists("sent.csv") and not system.exists("other") and len(system.ls("")) == 2
    assert system.cat_file("sent.csv", 0, 3) == b"x,y" and system.cat("sent.csv")[-1:] == b"\n"
    again = pickle.loads(pickle.dumps(system))
    assert again.info("sent.csv") == system.info("sent.csv") and again.ukey("sent.csv").startswith("xxh3")
    for wrong, words in {"rostrum://other": "other"}.items():
        try:
            fsspec.open(wrong, **options).open()
        except FileNotFoundError as error:
            assert words in str(error)
        else:
            raise AssertionError("an object that is not there was opened")
    try:
        with system.open("half", "wb") as out:
            out.write(b"half")
            raise ZeroDivisionError
    except ZeroDivisionError:
        assert not system.exists("half")  # what was not written to its end is no object
    try:
        system.pipe("sent.csv", b"another")
    except OSError as error:
        assert "exists already" in str(error)
    else:
        raise AssertionError("an object was changed")
    system.rm("sent.csv")
    assert not system.exists("sent.csv")
    print("right")


if __name__ == "__main__":
    main()
