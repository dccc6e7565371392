"""Runs one program, or several at the same time, and reads the JSON that they print."""
import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from dataclasses import dataclass, field


class ProgramError(Exception):
    """A program failed. The text says which one and why."""


@dataclass(frozen=True)
class Command:
    arguments: list
    environment: dict = field(default_factory=dict)  # added to this process's
    core: int = None                                 # the only core that it may use

    def words(self):
        pinned = [] if self.core is None else ["taskset", "-c", self.core]
        return [str(word) for word in pinned + self.arguments]

    def text(self):
        settings = ["%s=%s" % item for item in self.environment.items()]
        return " ".join(shlex.quote(word) for word in settings + self.words())


@dataclass(frozen=True)
class Finished:
    json: dict
    peak_rss: int  # [B] of the process


class _Running:
    def __init__(self, command, limit):
        self.command = command
        self.out, self.errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        try:
            # In a new process group, so that its children end with it.
            self.process = subprocess.Popen(command.words(), stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.errors,
                                            env={**os.environ, **command.environment}, start_new_session=True)
        except OSError as error:
            raise ProgramError("cannot start %s: %s" % (command.words()[0], error.strerror)) from error
        self.late = False
        self.timer = threading.Timer(limit, self.end, [True])
        self.timer.daemon = True
        self.timer.start()
        self.limit = limit

    def end(self, late=False):
        self.late = late
        if self.process.returncode is None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait(self):
        _, status, use = os.wait4(self.process.pid, 0)  # Popen.wait would discard the memory use
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.timer.cancel()
        self.out.seek(0)
        text = self.out.read().decode(errors="replace")
        if self.late:
            raise ProgramError("still running after %d s (--time-limit): %s" % (self.limit, self.command.text()))
        if self.process.returncode != 0:
            self.errors.seek(0)
            said = [line for line in self.errors.read().decode(errors="replace").splitlines() if line.strip()]
            raise ProgramError("exit code %d: %s\n    %s"
                               % (self.process.returncode, self.command.text(), "\n    ".join(said[-12:])))
        try:
            return Finished(json.loads(text) if text.strip() else {}, use.ru_maxrss * 1024)
        except json.JSONDecodeError:
            raise ProgramError("no JSON but %r: %s" % (text[:80], self.command.text())) from None


def run_together(commands, limit):
    """Starts all commands, then waits for all. Returns the results in the same order. `limit` [s]."""
    running = []
    try:
        for command in commands:
            running.append(_Running(command, limit))
        return [one.wait() for one in running]
    finally:  # also after Ctrl-C: no program keeps running
        for one in running:
            one.timer.cancel()
            one.end()


def run(command, limit):
    return run_together([command], limit)[0]
