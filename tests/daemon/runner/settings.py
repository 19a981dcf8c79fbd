"""How the runner, and the stock server it is compared with, are started."""

SETTINGS = ("-c", "2048", "-t", "1", "--flash-attn", "on", "--cache-type-k", "bf16", "--cache-type-v", "f16")
