"""Headless Chromium, controlled through its pipe with the DevTools protocol. Needs only Python's standard library."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]


def find():
    """Returns the path of the program, or None."""
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A separate browser process with one page."""

    def __init__(self, program, patience=60):
        self.patience = patience
        self.folder = tempfile.mkdtemp(prefix="trireme-report-")
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        self.read_end, self.write_end, self.buffer, self.number = ours_in, ours_out, b"", 0

        def as_three_and_four():
            # copy both first: a descriptor may already have the number 3 or 4 that the other one needs
            first, second = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(first, 3)
            os.dup2(second, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
                 "--disable-background-networking", "--force-color-profile=srgb", "--remote-debugging-pipe", f"--user-data-dir={self.folder}"]
        self.process = subprocess.Popen([program, *flags, "about:blank"], preexec_fn=as_three_and_four, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.events, self.session = [], None
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ["Page", "Runtime", "Log", "Network"]:
                self.call(f"{domain}.enable")
        except (RuntimeError, OSError):
            # the caller gets no browser that it could close
            self.close()
            raise

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self):
        until = time.monotonic() + self.patience
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, until - time.monotonic()))
            part = os.read(self.read_end, 1 << 20) if ready else b""
            if not part:
                raise RuntimeError(f"the browser did not answer for {self.patience} s, or it has ended")
            self.buffer += part
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def wait_for(self, method):
        while True:
            for place, event in enumerate(self.events):
                if event.get("method") == method:
                    return self.events.pop(place)
            self.events.append(self.receive())

    def open(self, path, width=1440, height=900, dark=False, grey=False):
        """Opens a file. Returns the console output, all requests except files, and the milliseconds until everything was drawn."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Emulation.setEmulatedVisionDeficiency", type="achromatopsia" if grey else "none")
        self.events = []
        self.call("Page.navigate", url=f"file://{path}")
        self.wait_for("Page.loadEventFired")
        drawn = self.js("new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))")
        said = [event["params"] for event in self.events if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled")]
        asked = [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        elsewhere = [url for url in asked if not url.startswith((f"file://{path}", "data:"))]
        return said, elsewhere, drawn

    def js(self, expression):
        """Returns the value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def processor_ms(self):
        """Returns the processor time in milliseconds of the processes that draw pages."""
        parents, times = {}, {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
                with open(f"/proc/{name}/cmdline") as file:
                    draws = "--type=renderer" in file.read()
            except OSError:
                continue
            parents[int(name)] = int(fields[1])
            times[int(name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") * 1000 if draws else 0

        def ours(process):
            return process == self.process.pid or (process in parents and ours(parents[process]))

        return sum(time for process, time in times.items() if ours(process))

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def picture(self, path, whole=True):
        """Saves a screenshot."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
