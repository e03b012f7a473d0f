"""Client of the rostrum agent: one object to many servers, messages to groups."""

from .agent import Agent, SendHandle, Subscription
from .channels import Channel, Channels
from .groups import Group, Message, View
from .names import COMMAND_APP_ID, agent_socket, data_id_of
from .objects import CreatedFile, ReadObject
from .replica import Replica
from .streams import StreamReader, StreamWriter
from .sync import SyncedReceiver, SyncResult, sync_folder, take_folder
from .values import (
    AlreadyThere,
    Busy,
    Cancelled,
    Code,
    Denied,
    Event,
    GroupStatus,
    NoRoom,
    NotFound,
    Receiver,
    RostrumError,
    SendResult,
    Status,
    StoredObject,
    TimedOut,
    Transfer,
    TransferFailed,
    Unavailable,
)

__all__ = [
    "COMMAND_APP_ID",
    "Agent",
    "AlreadyThere",
    "Busy",
    "Cancelled",
    "Channel",
    "Channels",
    "Code",
    "CreatedFile",
    "Denied",
    "Event",
    "Group",
    "GroupStatus",
    "Message",
    "NoRoom",
    "NotFound",
    "ReadObject",
    "Receiver",
    "Replica",
    "RostrumError",
    "SendHandle",
    "SendResult",
    "Status",
    "StoredObject",
    "StreamReader",
    "StreamWriter",
    "Subscription",
    "SyncResult",
    "SyncedReceiver",
    "TimedOut",
    "Transfer",
    "TransferFailed",
    "Unavailable",
    "View",
    "agent_socket",
    "data_id_of",
    "sync_folder",
    "take_folder",
]
