"""Which agents may connect: by a token in hello, when the manager was started with --agent-tokens.

The file is of the same form as REST's (access.py): `SERVER TENANT ROLE sha256:HEX`, where NAME is the server's name in
the topology; the role says nothing here. What an agent asks for counts against its tenant's quota.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from pathlib import Path

from rostrum.controller import certificates
from rostrum.controller.core.values import TENANT
from rostrum.controller.keyvalue import line
from rostrum.controller.northbound.rest import access
from rostrum.controller.northbound.thrift.codec import BadMessage

log = logging.getLogger("rostrum.access")


class AgentGate:
    """`tokens` None: every agent is let in, as a server of the default tenant. Raises access.AccessError."""

    def __init__(self, tokens: Path | None) -> None:
        self._file = tokens
        self._seen = certificates.stamp(tokens) if tokens else None
        self._known = access.read(tokens) if tokens else {}

    @property
    def open(self) -> bool:
        return self._file is None

    def admit(self, server: str, token: str | None) -> str:
        """The tenant of the agent. Raises BadMessage with what is to be done."""
        if self._file is None:
            return TENANT
        self.reload()
        if not token:
            raise BadMessage(
                f"the agent of {server} sent no token and this manager asks for one; start rostrumd with "
                f"--manager-token FILE (rostrum manager token {server} makes one)"
            )
        credential = f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"
        known = next((one for each, one in self._known.items() if hmac.compare_digest(each, credential)), None)
        if known is None or known.name != server:
            raise BadMessage(
                f"the token of the agent of {server} is not the one in the manager's --agent-tokens; make a new one "
                f"with rostrum manager token {server}, and give it to rostrumd --manager-token"
            )
        return known.tenant

    def reload(self) -> None:
        """Reads the file if it has changed; one that is wrong is told, and the old tokens stay."""
        if self._file is None or certificates.stamp(self._file) == self._seen:
            return
        self._seen = certificates.stamp(self._file)
        try:
            self._known = access.read(self._file)
            log.info(line("agent tokens read", file=self._file, agents=len(self._known)))
        except access.AccessError as error:
            log.error(line("agent tokens not read", cause=error))
