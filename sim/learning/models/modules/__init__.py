"""The modules of models, which import torch: read only when a model is built."""
