"""Runs cases of Autobahn's WebSocket test suite against a server that echoes.

    run.py SUITE URL LANES PATTERN...

SUITE is the folder that holds the converted package (convert.py), LANES the number of connections at a time. A pattern
is the number of a case, such as 9.1.6, or of several ones, such as 6.*. Prints each case: its behaviour, that of its close, the
milliseconds; the frames of a case whose behaviour is not as required. Exits with 1 if a behaviour is not as required.
"""
import binascii
import collections
import importlib.machinery
import pathlib
import sys
import types

import txaio
import autobahn.twisted.websocket  # noqa: F401, before the stand-ins
from autobahn.websocket import utf8validator

# The least time before a case gives up on the server. Most cases give up after a second, which a busy machine exceeds.
PATIENCE_SECONDS = 120
SHOWN_BYTES = 32
# "NON-STRICT", "UNIMPLEMENTED", "WRONG CODE", "UNCLEAN" and others are failures.
GOOD = ("OK", "INFORMATIONAL")


def octets(text):
    """The bytes that a text of a converted case stands for."""
    return text.encode("latin-1") if isinstance(text, str) else text


def load(folder):
    """Imports the suite with stand-ins for the modules that a client without reports does not need."""
    def stand_in(name, **names):
        module = types.ModuleType(name)
        module.__dict__.update(names)
        # Before Python's own search, so that an import of this name succeeds.
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module

    class Validator(utf8validator.Utf8Validator):
        def validate(self, text):
            return super().validate(octets(text))

    sys.path.insert(0, folder)
    data = pathlib.Path(folder, "autobahntestsuite")
    stand_in("pkg_resources", resource_filename=lambda _, name: str(data / name))
    stand_in("twisted.internet.ssl", ClientContextFactory=object)
    stand_in("twisted.web.server", Site=None)
    stand_in("twisted.web.static", File=None)
    stand_in("autobahntestsuite.report", CSS_COMMON="", CSS_DETAIL_REPORT="", CSS_MASTER_REPORT="", JS_MASTER_REPORT="")
    hex_of = lambda text: binascii.hexlify(octets(text)).decode()
    own = sys.modules["binascii"], utf8validator.Utf8Validator
    stand_in("binascii", b2a_hex=hex_of, hexlify=hex_of)
    utf8validator.Utf8Validator = Validator
    from autobahntestsuite import fuzzing
    sys.modules["binascii"], utf8validator.Utf8Validator = own
    return fuzzing


txaio.use_twisted()
fuzzing = load(sys.argv[1])
from twisted.internet import reactor  # noqa: E402


class Client(fuzzing.FuzzingClientProtocol):
    """Turns the texts of the cases into bytes and back; keeps a short log of the frames."""

    def connectionMade(self):
        self.frames = []
        super().connectionMade()

    def sendFrame(self, opcode, payload=b"", payload_len=None, **options):
        payload = octets(payload)
        if payload_len is not None:
            payload = (payload * (payload_len // len(payload) + 1))[:payload_len]
        super().sendFrame(opcode, payload, **options)

    def sendMessage(self, payload, *arguments, **options):
        super().sendMessage(octets(payload), *arguments, **options)

    def sendMessageFrameData(self, payload, *arguments, **options):
        return super().sendMessageFrameData(octets(payload), *arguments, **options)

    def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
        super().sendCloseFrame(code, octets(reasonUtf8), isReply)

    def received(self, payload):
        # These cases read their messages from files as bytes.
        reads_files = self.Case.__name__.startswith(("Case12_", "Case13_"))
        return payload if reads_files else payload.decode("latin-1")

    def onMessage(self, payload, is_binary):
        super().onMessage(self.received(payload), is_binary)

    def onPing(self, payload):
        super().onPing(self.received(payload))

    def onPong(self, payload):
        super().onPong(self.received(payload))

    def closeAfter(self, delay):
        super().closeAfter(max(delay, PATIENCE_SECONDS))

    def killAfter(self, delay):
        super().killAfter(max(delay, PATIENCE_SECONDS))

    def log_frame(self, direction, header, payload):
        if self.createWirelog and len(self.frames) < 50:
            beginning = payload[:SHOWN_BYTES]
            self.frames.append(
                f"{direction} opcode {header.opcode} fin {header.fin} rsv {header.rsv} {len(payload)} bytes {beginning}"
            )

    def logRxOctets(self, data):
        pass

    def logTxOctets(self, data, sync):
        pass

    def logRxFrame(self, header, payload):
        self.log_frame("received", header, b"".join(payload))

    def logTxFrame(self, header, payload, *_):
        # Case 10.1.1 compares these numbers.
        self.txFrameStats[header.opcode] = self.txFrameStats.get(header.opcode, 0) + 1
        self.log_frame("sent", header, payload)


class Lane(fuzzing.FuzzingClientFactory):
    """Runs a list of cases, one after the other."""

    def __init__(self, url, cases, results, done):
        self.results, self.done = results, done
        limits = ["openHandshakeTimeout", "closeHandshakeTimeout", "serverConnectionDropTimeout"]
        server = {"agent": "server", "url": url, "options": {limit: PATIENCE_SECONDS for limit in limits}}
        super().__init__({"servers": [server], "cases": cases, "outdir": None})

    def buildProtocol(self, address):
        client = Client()
        client.factory, client.caseAgent, client.case = self, self.agent, self.currentCaseIndex
        client.Case = fuzzing.Cases[self.currentCaseIndex - 1]
        client.runCase = client.Case(client)
        self.client = client
        return client

    def logCase(self, result):
        behaviours = result["behavior"], result["behaviorClose"]
        self.results[result["id"]] = behaviours
        print(result["id"], *behaviours, result["duration"], flush=True)
        if not is_good(behaviours):
            print("   ", result["result"], result["resultClose"], *self.client.frames, sep="\n    ")

    def clientConnectionLost(self, connector, reason):
        if self.nextCase():
            connector.connect()
        else:
            self.done()

    def clientConnectionFailed(self, connector, reason):
        print(f"{self.currentCaseId}: no connection: {reason.getErrorMessage()}")
        self.done()


def is_good(behaviours):
    return all(behaviour in GOOD for behaviour in behaviours)


def compare(case, one, other):
    """The suite compares the objects' pickles, which for Python 3 differ between equal objects."""
    return one == other


def run(url, lanes, cases):
    """The results of the cases, by number."""
    results = {}
    running = set(range(lanes))

    def lane(number):
        def done():
            running.discard(number)
            if not running:
                reactor.stop()
        Lane(url, cases[number::lanes], results, done)

    for number in range(lanes):
        lane(number)
    reactor.run()
    return results


def main():
    url, lanes, patterns = sys.argv[2], int(sys.argv[3]), sys.argv[4:]
    fuzzing.Case.compare = compare
    fuzzing.autobahntestsuite.version = fuzzing.autobahntestsuite.__version__
    names = fuzzing.CaseSetname, fuzzing.CaseBasename, fuzzing.Cases, fuzzing.CaseCategories, fuzzing.CaseSubCategories
    cases = fuzzing.CaseSet(*names).parseSpecCases({"cases": patterns})
    # The suite prints the start of each case.
    fuzzing.print = lambda *_: None
    results = run(url, min(lanes, len(cases)), cases)
    counts = collections.Counter(" ".join(behaviours) for behaviours in results.values())
    good = [case for case in cases if case in results and is_good(results[case])]
    print(f"{len(cases)} cases, {len(cases) - len(good)} not as required:", dict(sorted(counts.items())))
    sys.exit(0 if cases and good == cases else 1)


main()
