from pathlib import Path

from rostrum.controller.speed import compiled

NOT_COMPILED = compiled.use(Path(__file__).resolve().parent)  # why everything here is plain Python; empty = it is not
