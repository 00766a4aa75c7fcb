"""The client: trains and tests on its own partition."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_digits.task import Net, load_data
from flower_digits.task import test as test_fn
from flower_digits.task import train as train_fn

app = ClientApp()


def _load(msg: Message, context: Context):
    model = Net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    trainloader, testloader = load_data(
        context.node_config["partition-id"],
        context.node_config["num-partitions"],
        context.run_config.get("batch-size", 32),
    )
    return model, device, trainloader, testloader


@app.train()
def train(msg: Message, context: Context):
    model, device, trainloader, _ = _load(msg, context)
    train_loss = train_fn(
        model,
        trainloader,
        context.run_config.get("local-epochs", 1),
        context.run_config.get("learning-rate", 0.1),
        device,
    )
    content = RecordDict(
        {
            "arrays": ArrayRecord(model.state_dict()),
            "metrics": MetricRecord(
                {"train_loss": train_loss, "num-examples": len(trainloader.dataset)}
            ),
        }
    )
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    model, device, _, testloader = _load(msg, context)
    eval_loss, eval_acc = test_fn(model, testloader, device)
    metrics = MetricRecord(
        {
            "eval_loss": eval_loss,
            "eval_acc": eval_acc,
            "num-examples": len(testloader.dataset),
        }
    )
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
