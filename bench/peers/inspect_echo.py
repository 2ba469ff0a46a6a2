"""The same one-line tasks for Inspect AI, as many as BENCH_TASKS says."""

import os

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate


@task
def echo() -> Task:
    samples = [Sample(input=f"Say 7. Task {i}.", target="7") for i in range(int(os.environ["BENCH_TASKS"]))]
    return Task(dataset=samples, solver=generate(), scorer=includes())
