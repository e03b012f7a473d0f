"""`rostrum reproduce`: the papers' claims, run again by command and judged as data (results/claims.yaml)."""
