"""The counterpart of `_redis` for a cluster: commands, messages and bells go to the master of their slot.

    one server (`_redis/wire/`)       cluster (here)
    ---------------------------       --------------
    channel.py: one connection        router.py: a channel to each master that is in use
    pubsub.py: one connection         pubsub.py: sharded channels, a connection to each master
    inbox.py: one channel             inbox.py: a sharded channel in each slot in which this process waits
    bells.py: one `BLPOP`             bells.py: a place in line at each bell: `BLPOP` takes keys of one slot only

A primitive does not know which of the two it has: it sees the protocols of `_redis/wire/transport.py`.

`cluster.py` keeps the map of slots.  A node that refuses a command names the right one, and that patches one slot; the
whole map is read again after a refusal or a lost connection, and every 5 s while anything is held or waits.

Rules of failure.

* `MOVED`, `ASK`, `CLUSTERDOWN`: the node executed nothing.  The command is sent elsewhere, or after a pause, until its
  own timeout; later commands of that slot stay behind it, so their order holds.
* A node that is no longer a master: the commands under way to it are sent to its successor, as after a lost
  connection, because each script answers a second run as the first.
* A slot that moves: its subscriptions move along, and listeners are told that they may have missed messages.
* Renewals pass all others, and scripts that renew have one key, so they run while the slot moves key by key.

A command whose keys lie in two slots does not exist: `_redis/protocol/keys.py` gives all keys of an object one tag.

Begin with `router.py`; then `cluster.py`.
"""
