"""What a join on Spark keeps between two micro-batches, and how it gets there."""

from __future__ import annotations

from scripts.drawings.canvas import Canvas

WIDTH = 960
RUNS = (
    (96, "02:00"),
    (96, "02:30"),
    (60, "02:45"),
    (34, "02:52"),
    (20, "02:56"),
)  # widths, and a time in each


def drawing() -> str:
    canvas = Canvas("The state of a join on Spark: runs of rows, named by a manifest", WIDTH, 400)
    for y, side in ((40, "left"), (112, "right")):
        canvas.box(20, y, 120, 48, f"{side} rows", "a micro-batch", kind=side)
        canvas.arrow((142, y + 24), (182, 100), colour=f"{side}-")
    canvas.box(186, 68, 138, 64, "pack", "rows of one worker", "become one value")
    canvas.arrow((326, 100), (370, 100))
    canvas.box(374, 68, 110, 64, "shuffle", "Spark's own")
    canvas.arrow((486, 100), (530, 100))
    canvas.rect("panel", 534, 24, 406, 152)
    canvas.text(552, 48, "a worker", "bold")
    canvas.box(552, 66, 180, 64, "join new rows", "with the state, by the", "embedded engine's kernels")
    canvas.box(792, 66, 132, 64, "result rows", "Arrow, to the sink", kind="hit")
    canvas.arrow((734, 98), (788, 98), colour="hit-")
    canvas.arrow((642, 132), (642, 204))
    canvas.arrow((682, 204), (682, 132))
    canvas.rect("panel", 20, 206, 920, 178)
    canvas.text(38, 230, "the worker's state, committed by Spark with the micro-batch, or not at all", "bold")
    canvas.box(36, 248, 130, 112, "manifest", "names the runs;", "what it does not", "name, is not there")
    for y, side in ((252, "left"), (310, "right")):
        canvas.text(180, y + 26, f"{side} runs", f"{side}-ink bold")
        x = 262.0
        for number, (width, _) in enumerate(RUNS):
            canvas.rect(f"{side}{' dashed' if number == 0 else ''}", x, y + 6, width, 32)
            x += width + 8
        canvas.arrow((x + 42, y + 22), (x + 6, y + 22), colour=f"{side}-")
        canvas.text(x + 48, y + 27, "a new run per micro-batch", f"{side}-ink small")
    canvas.text(
        262,
        372,
        "oldest goes when the watermark has passed all it can match; small neighbours are merged",
        "muted small",
    )
    return canvas.svg()
