"""The client: adds 1 to what it receives."""

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(msg: Message, context: Context) -> Message:  # noqa: ARG001  Flower calls it so
    received = msg.content["arrays"]
    changed = ArrayRecord({name: Array(array.numpy() + 1) for name, array in received.items()})
    content = RecordDict({"arrays": changed, "metrics": MetricRecord({"num-examples": 1})})
    return Message(content=content, reply_to=msg)
