"""`python -m rostrum.controller` is `rostrum-manager`."""

from rostrum.controller.app import main

main()
