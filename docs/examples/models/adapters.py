"""Load adapters that `coterie export --format peft` wrote, with peft: `python adapters.py BASE ADAPTERS`."""

import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

base, adapters = sys.argv[1:]
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapters)
model.eval()
with torch.no_grad():
    print(model(torch.tensor([[1, 2, 3]])).logits.argmax(dim=-1))
