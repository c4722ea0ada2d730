"""Use a model that `coterie export` wrote, without coterie: `python exported.py FILE`."""

import sys

import torch
from safetensors.torch import load_file
from transformer import Transformer  # your own module, as in the run

model = Transformer((64,), 10, width=32)
model.load_state_dict(load_file(sys.argv[1]))
model.eval()
with torch.no_grad():
    print(model(torch.zeros(1, 64)).argmax(dim=1))
