"""Training in torch at a site: devices, tensors and arrays, seeds, loops."""
