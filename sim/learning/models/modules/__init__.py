"""Modules of models, which import torch and are loaded only when a model is built."""
