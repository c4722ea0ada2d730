"""Draw the mean accuracy of runs over virtual time: python figure.py RUN RUN ... writes figure.html."""

import sys
from pathlib import Path

import plotly.graph_objects as go
import polars as pl

figure = go.Figure(layout={"template": "plotly_white", "width": 760, "height": 400, "margin": {"t": 20}})
for run in map(Path, sys.argv[1:]):
    accuracy = pl.read_parquet(run / "metrics.parquet").filter(name="accuracy")
    mean = accuracy.group_by("time").agg(pl.mean("value")).sort("time")
    figure.add_scatter(x=mean["time"], y=mean["value"], name=run.name.rpartition("-1-")[0], mode="lines")
figure.update_xaxes(title="virtual time (s)")
figure.update_yaxes(title="mean test accuracy", tickformat=".0%")
figure.write_html("figure.html", config={"displayModeBar": False})
