"""PyTorch gets its bytes by rostrum: large broadcasts of torch.distributed, and weights for many servers.

import rostrum.torch                                    # registers the backend "rostrum"
torch.distributed.init_process_group("rostrum", ...)

rostrum.torch.publish(model.state_dict(), 7, ["h3", "h5"], name="policy")
with rostrum.torch.subscribe("policy") as weights:      # on h3 and h5, in as many processes as there are
    model.load_state_dict(weights.next().state_dict())
"""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError(
        "rostrum.torch needs PyTorch, 1.13 or later: pip install torch, or Debian's python3-torch"
    ) from error

if tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in torch.__version__.split(".")[:2]) < (1, 13):
    raise ImportError(f"rostrum.torch needs PyTorch 1.13 or later; this is {torch.__version__}")

from .backend import register
from .weights import Published, Subscription, Weights, publish, subscribe

register()

__all__ = ["Published", "Subscription", "Weights", "publish", "register", "subscribe"]
