"""What the tests of compiled graphs share."""

import pytest
import torch

from torch_tpu import _graph


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def graphs(monkeypatch):
    """The graphs that were compiled, as what runs them."""
    made = []
    plain = _graph.run_graph

    def noted(graph, devices, *options):
        run = plain(graph, devices, *options)
        made.append(run.__closure__[0].cell_contents)
        return run

    monkeypatch.setattr("torch_tpu.compile.run_graph", noted)
    return made
