"""A registry to read from, beside the agent: what a layout has is there for containerd, skopeo and others at once.

It speaks the pull half of the OCI distribution protocol. What it does not have it says so without asking anybody, so
that clients go on to the next registry by themselves.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import socket
import socketserver
import threading
import urllib.parse
from http import HTTPStatus
from typing import Any

from .oci import DIGEST, NAME_MOST, REPOSITORY, TAG, Layout, kind_of, parse_name, parsed
from .values import Code, RostrumError

CLIENTS_MOST = 256
SILENCE_S = 30.0  # of a client
PATH = re.compile(r"/v2/(.+)/(manifests|blobs|tags)/([^/]+)")
RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


class Registry:
    """What a layout says to requests."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def digests(self, repository: str, host: str) -> dict[str, str]:
        """Of a repository, the digest of each tag. A host is compared if both sides name one; where images of several
        hosts are meant and differ, none is it."""
        found: dict[str, set[str]] = {}
        try:
            images = self.layout.images()
        except RostrumError as error:
            if error.code == Code.UNKNOWN:  # nothing was put there yet
                return {}
            raise
        for text, manifest, _ in images:
            try:
                name = parse_name(text)
            except RostrumError:
                continue
            if name.repository == repository and (not host or not name.host or name.host == host):
                found.setdefault(name.tag, set()).add(manifest.digest)
        return {tag: digests.pop() for tag, digests in found.items() if len(digests) == 1}

    def manifest(self, repository: str, reference: str, host: str) -> tuple[str, str, bytes] | None:
        """(digest, media type, bytes) by tag or digest."""
        digest = reference if DIGEST.fullmatch(reference) else self.digests(repository, host).get(reference)
        if digest is None:
            return None
        try:
            content = self.layout.manifest(digest)
            kind = kind_of(parsed(content, digest))
        except RostrumError:  # a blob that is none, or damaged: another registry may have it
            return None
        return (digest, kind, content) if kind else None


def ranged(text: str | None, size: int) -> tuple[int, int] | None:
    """(first, end) of a Range field; the whole if there is none, or one that may be ignored; None: beyond the end."""
    found = RANGE.fullmatch(text.strip()) if text else None
    if not found or not (found[1] or found[2]):
        return 0, size
    if not found[1]:
        return (max(0, size - int(found[2])), size) if int(found[2]) and size else None
    first, end = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
    if found[2] and int(found[2]) < first:
        return 0, size
    return (first, end) if first < size else None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "rostrum", ""
    timeout = SILENCE_S
    server: Mirror

    def do_GET(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        if url.path in ("/v2/", "/v2"):
            return self._answer(HTTPStatus.OK, b"{}")
        found = PATH.fullmatch(url.path)
        if not found or len(found[1]) > NAME_MOST or not REPOSITORY.fullmatch(found[1]):
            return self._error(HTTPStatus.NOT_FOUND, "NAME_UNKNOWN", "no such thing is here")
        host = (urllib.parse.parse_qs(url.query).get("ns") or [""])[0]
        try:
            if found[2] == "blobs":
                self._blob(found[3])
            elif found[2] == "manifests":
                self._manifest(found[1], found[3], host)
            elif found[3] == "list":
                self._tags(found[1], host)
            else:
                self._error(HTTPStatus.NOT_FOUND, "UNSUPPORTED", "no such thing is here")
        except RostrumError as error:
            self._error(HTTPStatus.INTERNAL_SERVER_ERROR, "UNKNOWN", str(error))
        return None

    do_HEAD = do_GET

    def _refuse(self) -> None:
        self.close_connection = True  # what it sends along is not read
        self._error(
            HTTPStatus.METHOD_NOT_ALLOWED, "UNSUPPORTED", "this registry is for reading: GET and HEAD", allow=True
        )

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _refuse

    def _manifest(self, repository: str, reference: str, host: str) -> None:
        if not DIGEST.fullmatch(reference) and not TAG.fullmatch(reference):
            return self._error(HTTPStatus.NOT_FOUND, "MANIFEST_UNKNOWN", "that is neither a tag nor a SHA-256 digest")
        found = self.server.registry.manifest(repository, reference, host)
        if found is None:
            return self._error(HTTPStatus.NOT_FOUND, "MANIFEST_UNKNOWN", f"{repository} {reference} is not here")
        digest, kind, content = found
        return self._answer(HTTPStatus.OK, content, kind, {"Docker-Content-Digest": digest, "ETag": f'"{digest}"'})

    def _tags(self, repository: str, host: str) -> None:
        tags = sorted(self.server.registry.digests(repository, host))
        if not tags:
            return self._error(HTTPStatus.NOT_FOUND, "NAME_UNKNOWN", f"{repository} is not here")
        return self._answer(HTTPStatus.OK, json.dumps({"name": repository, "tags": tags}).encode())

    def _blob(self, digest: str) -> None:
        try:
            if not DIGEST.fullmatch(digest):
                raise FileNotFoundError
            file = self.server.registry.layout.open(digest)
        except (FileNotFoundError, NotADirectoryError):
            return self._error(HTTPStatus.NOT_FOUND, "BLOB_UNKNOWN", "that blob is not here")
        with open(file, "rb", buffering=0) as blob:
            size = os.fstat(file).st_size
            part = ranged(self.headers.get("Range"), size)
            if part is None:
                fields = {"Content-Range": f"bytes */{size}"}
                return self._answer(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, b"", fields=fields)
            first, end = part
            partial = end - first != size
            self.send_response(HTTPStatus.PARTIAL_CONTENT if partial else HTTPStatus.OK)
            if partial:
                self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
            self._fields("application/octet-stream", end - first)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Docker-Content-Digest", digest)
            self.send_header("ETag", f'"{digest}"')
            self.end_headers()
            if self.command == "GET" and end > first:
                self.wfile.flush()
                self.connection.sendfile(blob, first, end - first)
        return None

    def _fields(self, kind: str, length: int) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")

    def _answer(
        self, status: HTTPStatus, content: bytes, kind: str = "application/json", fields: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self._fields(kind, len(content))
        for key, value in (fields or {}).items():
            self.send_header(key, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _error(self, status: HTTPStatus, code: str, text: str, allow: bool = False) -> None:
        content = json.dumps({"errors": [{"code": code, "message": text}]}).encode()
        self._answer(status, content, fields={"Allow": "GET, HEAD"} if allow else None)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the parser of requests refuses."""
        self.close_connection = True
        self.command = getattr(self, "command", None) or "GET"
        self.request_version = getattr(self, "request_version", "") or "HTTP/1.1"
        self.requestline = getattr(self, "requestline", "")
        self._error(HTTPStatus(code), "UNSUPPORTED", message or "that is no request")

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # the client went away, or says nothing
            self.close_connection = True


class Mirror(http.server.ThreadingHTTPServer):
    """Serves a layout at an address; at most CLIENTS_MOST connections at once, others are closed."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, layout: Layout, address: str, port: int) -> None:
        self.registry = Registry(layout)
        self._room = threading.BoundedSemaphore(CLIENTS_MOST)
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, port), Handler)

    def server_bind(self) -> None:
        """Without the look-up of this server's name, which may take long."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass
