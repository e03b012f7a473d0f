"""HTTP: nginx at the sender, curl at every receiver, all at once."""

from __future__ import annotations

import shutil

from rostrum.bench.cases import Case
from rostrum.bench.run import Plain, Run
from rostrum.bench.tools.rates import debian_version

PORT = 8080
CONFIGURATION = """\
user root;
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 256; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{ listen {address}:{port}; location / {{ root {root}; }} }}
}}
"""


class Http(Plain):
    """The server runs before, as web servers do; the command to send is that of the receivers: curl."""

    name = "http"
    timed = "start of all receivers' curl at once to the end of the last (nginx runs before)"

    def unfit(self, case: Case) -> str:
        return "" if shutil.which("nginx", path="/usr/sbin:/usr/bin") else "nginx is not installed"

    def version(self) -> str:
        return debian_version("nginx-core") or debian_version("nginx-light")

    def prepare(self, run: Run) -> None:
        folder = run.logs / "nginx"
        folder.mkdir()
        text = CONFIGURATION.format(folder=folder, address=run.sender.address, port=PORT, root=run.source.parent)
        (folder / "nginx.conf").write_text(text)
        server = run.start("sender", run.sender, ["nginx", "-e", "stderr", "-c", str(folder / "nginx.conf")])
        run.ready([server], "")
        probe = ["curl", "-sf", "-o", "/dev/null", "-r", "0-0", "--retry", "50", "--retry-connrefused"]
        argv = [*probe, "--retry-delay", "0", "--retry-max-time", "10", f"http://{run.sender.address}:{PORT}/"]
        run.deadline = float("inf")
        run.wait(run.start("receivers", run.receivers[0], [*argv[:-1], argv[-1] + run.source.name]))

    def send(self, run: Run) -> None:
        url = f"http://{run.sender.address}:{PORT}/{run.source.name}"
        clients = []
        for host in run.receivers:
            argv = ["curl", "-sSf", "-o", str(run.target(host)), url]
            clients.append(run.start("receivers", host, argv))
        for client in clients:
            run.wait(client)
