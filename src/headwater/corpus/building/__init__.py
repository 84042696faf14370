"""`headwater corpus build`: recipes, and the pipeline that carries them out on workers or a cluster."""
