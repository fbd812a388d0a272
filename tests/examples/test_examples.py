import os
import re
import runpy
import tempfile
import warnings
from pathlib import Path

from tests.support.forks import Fork

ROOT = Path(__file__).parents[2]


def run(example: str) -> list[str]:
    """Run one example as its reader would, but in a fork, and return the lines that it prints."""
    with tempfile.TemporaryFile("w+b") as out, tempfile.TemporaryFile("w+b") as errors:
        code = Fork(f"{__name__}:example_itself", (example,), stdout=out, stderr=errors).wait(30)
        printed, complaints = [os.pread(each.fileno(), 1_000_000, 0).decode() for each in (out, errors)]
    assert (code, complaints) == (0, "")
    return printed.splitlines()


def example_itself(example: str) -> None:
    """In a child: run it as `python -W error -m` does."""
    warnings.simplefilter("error")
    runpy.run_module(f"examples.{example}", run_name="__main__", alter_sys=True)


def test_every_example_has_its_test() -> None:
    """Whoever adds an example adds a test of what it prints."""
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")} - {"__init__"}

    assert {f"test_{example}" for example in examples} <= globals().keys()


def test_worker_health() -> None:
    """Ready when it claims or is busy; alive throughout."""
    assert run("worker_health") == [
        "before:  503 starting",
        "idle:    200 ready",
        "one job: 200 busy",
        "stopped: 503 draining",
        "alive:   200 live",
    ]


def test_lock() -> None:
    """All pieces are sold, none twice, and each sale has a higher token than the one before."""
    assert run("lock") == ["pieces on the shelf:  25", "pieces sold:          25", "fencing tokens rose:  True"]


def test_deadlock() -> None:
    """It is explained as the page shows it, but for times, the machine and the process."""
    *explained, ended, both = run("deadlock")
    assert (ended, both) == ("ended by its timeout: True", "with locks(): both done")
    page = (ROOT / "docs/how-to/why-it-waits.md").read_text("utf-8")
    [shown] = re.findall(r"^```text\n(lock 'account:ann'.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [same(line) for line in explained] == [same(line) for line in shown.splitlines()]


def same(line: str) -> str:
    """Without what is different each time; either task may be the first."""
    line = re.sub(r"process \d+ on [^,]+,", "process N on HOST,", line)
    line = re.sub(r"[\d.]+ s\b", "N s", line)
    line = re.sub(r" at \S+/deadlock", " at deadlock", line)
    return re.sub(r"acquired at \S+/", "acquired at ", line)


def test_semaphore() -> None:
    """All payments are made, and all five permits are used."""
    assert run("semaphore") == ["payments made: 30", "most at once:  5"]


def test_rate_limit() -> None:
    """All letters are sent, none too early; and who tries too often is told when to come back."""
    assert run("rate_limit") == [
        "letters sent:  30, too early: 0",
        "ann:           tried",
        "ann:           tried",
        "ann:           tried",
        "ann:           told to come back in 20 s",
    ]


def test_quorum_lock() -> None:
    """One host after the other, also with one server lost; with a majority lost nobody gets in."""
    assert run("quorum_lock") == [
        "three servers: begin end begin end begin end",
        "two servers:   begin end begin end",
        "no server:     2 of 3 failed",
    ]


def test_delayed_task() -> None:
    """Jobs run in the order in which they are due, and none early."""
    found = [re.fullmatch(r"(\w+) is reminded after ([\d.]+) s", line) for line in run("delayed_task")]

    assert [line and line[1] for line in found] == ["ann", "bob", "cy", "dee"]
    assert all(line and float(line[2]) >= due for line, due in zip(found, (0.3, 0.6, 0.9, 1.2), strict=True))


def test_newest() -> None:
    """The first build is cancelled, the second never begins, and the third begins when the first has tidied up."""
    assert run("newest") == [
        "first: a new job",
        "shop at first: the build begins",
        "second: a new job",
        "third: in the place of the job that waits",
        "shop at first: the build is cancelled",
        "shop at third: the build begins",
        "shop at third is online",
    ]


def test_debounce() -> None:
    """Three changes are one job, with the last of them."""
    *lines, ended = run("debounce")
    assert lines == [
        "page 7: a job waits, for 'A'",
        "page 7: the same job, for 'A sword'",
        "page 7: the same job, for 'A sword for sale'",
        "page 7 is indexed: 'A sword for sale'",
    ]
    assert re.fullmatch(r"succeeded after 1 attempt, [\d.]+ s after the last change", ended)


def test_cron() -> None:
    """One report a second, though two workers follow the schedule."""
    assert run("cron") == [
        "a report at a full second: True",
        "the next one 1 s after it",
        "the next one 2 s after it",
    ]


def test_worker() -> None:
    """What is urgent runs first; within a queue, what came first."""
    assert run("worker") == [
        "high    new password for bob",
        "medium  newsletter to ann",
        "medium  newsletter to cy",
        "low     clean up /uploads",
    ]


def test_job_result() -> None:
    """A job is followed to its result, found again by its name, and another is cancelled."""
    assert run("job_result") == [
        "it is running - Progress(fraction=0.5, text='half of them added')",
        "enqueued twice: False",
        "total: 29.5",
        "order:7 is paid",
        "attempt 1 failed: ConnectionError: the bank does not answer",
        "cancelled: True",
        "so it has no result",
    ]


def test_pipeline() -> None:
    """A job runs when all that it waits for have succeeded, with their results; or is dead-lettered."""
    assert run("pipeline") == ["the sum is waiting", "words: 10", "no sum: its parent ID was cancelled"]


def test_undo() -> None:
    """What was charged is refunded before the job is cancelled."""
    assert run("undo")[:-1] == [
        "charges the sword",
        "refunds the payment of the sword",
        "cancelled: True",
    ]


def test_durable_steps() -> None:
    """What the first attempt has done is not done again."""
    assert run("durable_steps") == [
        "attempt 1",
        "charges 1200 cents for the sword",
        "cannot pack it now",
        "attempt 2",
        "parcel with the sword, paid with 1200 cents",
    ]


def test_shared_limit() -> None:
    """Of both tasks together three run at once."""
    assert run("shared_limit") == ["at once, at most: {'api': 3}"]


def test_limits() -> None:
    """All are imported, and never more at once than may."""
    *imported, at_once = run("limits")

    assert sorted(imported) == sorted(f"imports {number}.csv" for number in range(18))
    assert at_once == "at once, at most: {'acme': 2, 'all': 4, 'bits': 2, 'corp': 2}"


def test_turns() -> None:
    """The tenant with few exports does not wait for the one with many."""
    assert run("turns") == ["first: acme bits acme bits acme bits acme acme", "exports: 1003"]


def test_stream() -> None:
    """Readers get all words of the attempt that comes to its end; one who comes late does not see the one before."""
    *before, reader, late_reader = run("stream")

    assert before in ([], ["a reader begins anew"])
    assert reader == "a reader reads: it depends on the weather"
    assert late_reader == "a late reader reads: it depends on the weather"


def test_group() -> None:
    """The callback waits until all members are in and have ended."""
    assert run("group") == [
        "publish is waiting - more pictures may come",
        "cancelled: True",
        "1001 of 1002 succeeded, 1 was cancelled",
        "publishes 1001 pictures, the last one is 1000.webp",
    ]


def test_chat() -> None:
    """Each member reads what is new to them, and one who joined late what came after."""
    assert run("chat") == [
        "cy   reads  ann: Lunch at one?  bob: Yes!",
        "bob  reads  ann: Lunch at one?  bob: Yes!  cy: Make it two.  ann: Two it is.",
        "cy   reads  cy: Make it two.  ann: Two it is.",
        "dee  reads  ann: Two it is.",
        "read up to   {'ann': 0, 'bob': 4, 'cy': 4, 'dee': 4}",
    ]


def test_mailbox() -> None:
    """What was not handled comes back, what was dropped is told, and who waits is woken."""
    assert run("mailbox") == [
        "unread:   3",
        "missed:   2",
        "handled:  {'parcel': 3}",
        "crashed:  {'parcel': 4}",
        "handled:  [{'parcel': 5}]",
        "handled:  {'parcel': 4} at attempt 2",
        "woken by: {'parcel': 6}",
    ]


def test_sync_producer() -> None:
    """What a thread without an event loop sends is run, taken and read by coroutines."""
    assert run("sync_producer") == [
        "enqueued: True again: False",
        "result:   receipt 17 in Greek",
        "item:     {'image': 17}",
        "message:  your receipt is on its way",
    ]


def test_approval() -> None:
    """The job has left its worker; the first answer of a thread brings it back, and the second counts for nothing."""
    assert run("approval") == [
        "waits: True",
        "ann has decided, and it counts: True",
        "bob has decided, and it counts: False",
        "refund of order 17, approved by ann",
    ]


def test_barrier() -> None:
    """Each step is ended by all before the next is begun, and one worker tidies up after each."""
    assert run("barrier") == [
        "ended:       load load load train train train store store store",
        "tidied up:   load train store",
    ]


def test_members() -> None:
    """Each site has one crawler, which changes when one comes or goes."""
    assert run("members") == [
        "alone, ann has: 40",
        "members:        ['ann', 'bob']",
        "both at once:   0",
        "again alone:    40",
    ]


def test_event() -> None:
    """Nobody is served from half a catalogue."""
    assert run("event") == ["early requests: 4 parts 4 parts 4 parts", "a late request: 4 parts"]


def test_rwlock() -> None:
    """Readers meet, and none sees a page that is half rewritten."""
    assert run("rwlock") == ["the page says:     third edition", "read together:     True", "read half-written: 0"]


def test_transfer() -> None:
    """All come to their end, and the coins are what they were."""
    assert run("transfer") == [
        "transfers made:    True",
        "coins at the end:  300 of 300",
        "accounts in debt:  0",
    ]


def test_deploy_signal() -> None:
    """Every change is taken in its order, and who was too slow is told how many were missed."""
    assert run("deploy_signal") == [
        "processes told:  [1, 1, 1, 1, 1]",
        "web:             took 1, took 2, took 3, took 4, took 5",
        "mail, was busy:  missed 3, loaded 5",
    ]


def test_scheduler() -> None:
    """Each process leads in its turn, when the one before it has been killed."""
    assert run("scheduler") == [
        "processes: 3, and one leads",
        "processes: 2, and one leads",
        "processes: 1, and one leads",
        "processes: 0",
    ]


def test_every() -> None:
    """The second process goes on where the first has ended, and not too early."""
    assert run("every") == ["ran in:     first first first second second second", "too early:  0"]


def test_index() -> None:
    """What says most, or what is newest; never what was excluded; also in a script without spaces."""
    wiki = "Found it. The compiler, compiler flags and compiler cache are in the wiki."
    assert run("index") == [
        f"compiler             {wiki} | Which C++ compiler do we use? | The build says: compiler not found.",
        f"compiler             {wiki} | The build says: compiler not found. | Which C++ compiler do we use?",
        "compiler -c++ -wiki  The build says: compiler not found.",
        '"flags for tests"    The flags for tests are not.',
        "寿司                   Lunch at one? 寿司にしよう",
        "words like comp: compiler",
    ]


def test_typed_queue() -> None:
    """What does not fit is refused where it is put in, and dead-lettered where it is received; nothing is lost."""
    assert run("typed_queue") == [
        "refused:   item for queue 'pictures' does not fit Picture: Expected `int`, got `str` - at `$.image`",
        "received:  Picture(image=17, tags=['new'])",
        "dead:      {'picture': 16}, for Picture: Object missing required field `image`",
        "mended:    Picture(image=16, tags=[])",
    ]


def test_item_queue() -> None:
    """What fails is tried again; what cannot be done is dead-lettered, and the rest is done."""
    assert run("item_queue") == [
        "pictures done:  9 of 10",
        "tried again:    2 tries of 3, 3 of 7",
        "dead-lettered:  7, for ValueError: not a picture",
    ]


def test_schedules() -> None:
    """Each change is in force in both workers."""
    assert run("schedules") == [
        "fetched from: old shop",
        "changed to:   new shop",
        "paused:       prices every 0.2 s None",
        "triggered:    once",
        "left:         0",
    ]
