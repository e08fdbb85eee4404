"""torch's own TCPStore as a peer of ours: first as a client of our server at the port given, then as a server.

Prints one JSON object of what it was told; then the ports of its own servers, which serve until its stdin ends; then what
our client left there.
"""

import datetime
import json
import sys

import torch.distributed as dist

SECOND = datetime.timedelta(seconds=1)


def failure_of(call):
    try:
        call()
    except Exception as error:  # the kind differs between releases; that there is one does not
        return type(error).__name__
    return None


def client(port):
    # world_size and wait_for_workers: the client registers itself under torch's own key, as torchrun's workers do.
    store = dist.TCPStore("127.0.0.1", port, 1, is_master=False, wait_for_workers=True, timeout=10 * SECOND)
    told = {"keys_at_start": store.num_keys()}
    store.set("a", "value")
    told["get"] = store.get("a").decode()
    told["from_us"] = store.get("from_us").decode()
    store.set("large", "x" * (1 << 20))
    told["large"] = len(store.get("large"))
    told["add"] = [store.add("n", 2), store.add("n", -5)]
    store.wait(["a", "n"], SECOND)
    told["wait_timeout"] = failure_of(lambda: store.wait(["never"], datetime.timedelta(milliseconds=50)))
    told["get_after_timeout"] = store.get("a").decode()
    told["check"] = [store.check(["a", "n"]), store.check(["a", "never"])]
    told["compare_set"] = [
        store.compare_set("c", "", "one").decode(),
        store.compare_set("c", "two", "three").decode(),
        store.compare_set("c", "one", "four").decode(),
        store.compare_set("never", "x", "y").decode(),
    ]
    store.append("ap", "po")
    store.append("ap", "tato")
    told["append"] = store.get("ap").decode()
    store.multi_set(["m1", "m2"], ["first", "second"])
    told["multi_get"] = [value.decode() for value in store.multi_get(["m1", "a", "m2"])]
    told["delete"] = [store.delete_key("m1"), store.delete_key("m1")]
    prefixed = dist.PrefixStore("prefix", store)
    prefixed.set("k", "under the prefix")
    if hasattr(store, "queue_push"):
        store.queue_push("q", "first")
        store.queue_push("q", "second")
        told["queue"] = [store.queue_len("q"), store.queue_pop("q").decode(), store.queue_pop("q").decode(), store.queue_len("q")]
        told["queue_empty"] = failure_of(lambda: store.queue_pop("q", False))
    if hasattr(store, "list_keys"):
        told["list_keys"] = sorted(store.list_keys())
    if hasattr(store, "barrier"):
        store.barrier("b", 1, SECOND)
        told["barrier_timeout"] = failure_of(lambda: store.barrier("b2", 2, datetime.timedelta(milliseconds=50)))
    told["clone"] = store.clone().get("a").decode()
    print(json.dumps(told), flush=True)


def server():
    # At a second port the older of torch's two servers, which some clusters still choose.
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, use_libuv=libuv) for libuv in (True, False)]
    for store in stores:
        store.set("from_torch", "hello")
    print(*(store.port for store in stores), flush=True)
    sys.stdin.read()
    print(*(store.get("from_us").decode() for store in stores))


if __name__ == "__main__":
    client(int(sys.argv[1]))
    server()
