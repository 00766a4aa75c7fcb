"""The text of a new plan file, to be filled in by a person; `plan_file.py` reads it."""

from pathlib import Path

_HEAD = """\
# A plan: what a run will execute. Check it with `fedward plan validate {file}`,
# hand it in with `fedward plan submit {file}`.
name = "{name}"
study = "{study}"
dataset = "{dataset}"        # the name of the data in each site's agent.toml
seed = 1

"""

_RECIPE = """\
[app]
recipe = "tabular"           # for an uploaded app: `fedward plan init -h`, --bundle

[app.config]                 # reaches the app as context.run_config
target = "outcome"           # the column to predict, 0 or 1
features = "age,weight"      # the columns to predict from
model = "logistic"           # or "mlp"
epochs = 1
batch-size = 32
learning-rate = 0.1
"""

_BUNDLE = """\
[app]
bundle = "{bundle}"

# [app.config]               # replaces settings of the app's own [tool.flwr.app.config]
# local-epochs = 2

# [app.train-config]         # beside server-round in msg.content["config"], as lr is in
# lr = 0.01                  # Flower's templates; [app.evaluate-config] likewise

# The first model: a file, or a call of the app's own code on this machine. Or leave this out
# and give --initial and --app-dir to `fedward plan submit`.
# [initial]
# file = "start.safetensors" # or call = "pkg.task:Net" and directory = "path/to/app"
"""

_REST = """
[rounds]
count = 10
quorum = 2                   # fewer answers than this fail the attempt
deadline_s = 600             # seconds without a sign of life
grace_s = 10                 # after the quorum's last update

[strategy]                   # fedavg, fedavgm, fedprox, fedadam, fedadagrad or fedyogi;
name = "fedavg"              # their parameters go into [strategy.parameters], see README.md
"""


def write_template(file: Path, *, study: str, dataset: str, bundle: str | None) -> str:
    """Return the text of a plan file for the recipe `tabular`, or for an uploaded bundle."""
    head = _HEAD.format(file=file, name=file.stem, study=study, dataset=dataset)
    app = _RECIPE if bundle is None else _BUNDLE.format(bundle=bundle)
    return head + app + _REST
