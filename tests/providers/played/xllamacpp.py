"""Plays the library whose server the local provider starts: the same names, and no model.

The "file of weights" says in words how it is to start; the last user message says how to answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class CommonParams(SimpleNamespace):
    def __init__(self) -> None:
        super().__init__(model=SimpleNamespace(path=""), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace())


class Server:
    def __init__(self, parameters: CommonParams) -> None:
        words = Path(parameters.model.path).read_text().split()
        print("the library prints what it likes", flush=True)
        if "refuse" in words:
            print("bad magic", file=sys.stderr)
            raise RuntimeError("Failed to init server.")
        if "die" in words:
            os.write(2, b"out of memory\n" + b"x" * 5_000 + b"\nlast words\n")
            os._exit(7)
        if "hang" in words:
            time.sleep(1_000)
        if "stubborn" in words:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._http = ThreadingHTTPServer(("127.0.0.1", parameters.port), Handler)
        self._http.daemon_threads = True
        self._http.state = State(parameters, unwell=1 if "unwell" in words else 0)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def listening_address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"


class State:
    def __init__(self, parameters: CommonParams, unwell: int) -> None:
        self.parameters = parameters
        self.unwell = unwell
        self.requests = 0
        self.looks = 0
        self.left = threading.Semaphore(0)
        self.noise = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    @property
    def state(self) -> State:
        return self.server.state

    def do_GET(self) -> None:
        self.state.looks += 1
        if self.path == "/die":
            os._exit(8)
        ready = self.path == "/health" and self.state.looks > self.state.unwell
        self._whole(200 if ready else 503, {"status": "ok" if ready else "loading"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {self.state.parameters.api_keys[0]}":
            self._whole(401, {"error": {"message": "Invalid API Key", "type": "authentication_error", "code": 401}})
            return
        self.state.requests += 1
        said = [message["content"] for message in body["messages"] if message["role"] == "user"]
        self._answer(said, body)

    def _answer(self, said: list[Any], body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self._delta("Well")
        match said[-1]:
            case "die":
                os.write(2, b"GGML_ASSERT failed\n")
                os._exit(9)
            case "drop":
                return
            case "stall":
                self.rfile.read(1)  # until the other side has gone
                self.state.left.release()
            case "who left?":
                self.state.left.acquire()
                self._end(", somebody")
            case "call add":
                call = {"type": "tool_calls", "calls": [{"name": "add", "input": {"a": 1, "b": 2}}]}
                self._end(json.dumps(call) if "response_format" in body else "no schema")
            case "noise":
                os.write(2, b"n" * 1_000_000)
                self._end(f", {os.fstat(2).st_size}")
            case "tell":
                told = {**vars(self.state.parameters), "model": self.state.parameters.model.path}
                told = {name: sorted(value) if isinstance(value, set) else value for name, value in told.items()}
                told |= {name: vars(value) for name, value in told.items() if isinstance(value, SimpleNamespace)}
                process = {"argv": sys.argv, "environ": dict(os.environ), "session": os.getsid(0), "pid": os.getpid()}
                self._end(
                    json.dumps({"parameters": told, "process": process, "body": body, "headers": dict(self.headers)})
                )
            case _:
                self._end(f", {self.state.requests}")

    def _delta(self, text: str, finish: str | None = None) -> None:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
        self._event({"choices": [choice]})

    def _end(self, text: str) -> None:
        self._delta(text)
        self._delta("", "stop")
        self._event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, payload: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(payload).encode() + b"\n\n")
        self.wfile.flush()

    def _whole(self, status: int, payload: dict[str, Any]) -> None:
        body = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
