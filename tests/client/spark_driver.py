"""A Spark application that is told what to do, a line of JSON at a time; runs in Spark's environment (.ci/setup)."""

import gc
import json
import os
import pickle
import sys
import traceback

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession, functions


class Program:
    """Each method is a word that it is told."""

    def __init__(self, settings):
        conf = SparkConf()
        for key, value in settings.items():
            conf.set(key, value)
        self.context = SparkContext(conf=conf)
        self.values = {}
        self.session = SparkSession(self.context)

    def executors(self):
        """How many there are."""
        return self.context._jsc.sc().getExecutorMemoryStatus().size() - 1

    def servers(self):
        return list(self.context._jvm.org.rostrum.spark.RostrumPlugin.servers())

    def without_agents(self):
        return self.context._jvm.org.rostrum.spark.RostrumPlugin.executorsWithoutAgents()

    def broadcast(self, name, size, seed):
        self.values[name] = self.context.broadcast(content(size, seed))
        return self.values[name]._jbroadcast.getClass().getSimpleName()

    def read(self, name, tasks):
        """What tasks have, as (first byte, size), and on how many executors."""
        value = self.values[name]

        def look(_):
            data = value.value
            yield (os.environ.get("ROSTRUM_SOCKET", ""), data[:4].hex(), len(data))

        return self.context.parallelize(range(tasks), tasks).mapPartitions(look).collect()

    def here(self, name):
        """The value in the driver's JVM: the size of its pickle."""
        return os.path.getsize(self.values[name]._jbroadcast.value().path())

    def unpersist(self, name):
        self.values[name].unpersist(blocking=True)

    def destroy(self, name):
        value = self.values.pop(name)
        if hasattr(value, "way"):
            value.destroy()
        else:
            value.destroy(blocking=True)

    def leave(self, name):
        """Nobody has it any more; the JVM sees that."""
        del self.values[name]

    def collect(self):
        gc.collect()
        self.context._jvm.System.gc()

    def join(self, rows):
        """A broadcast join of SQL: its plan's name, the sum, and what it must be."""
        many = self.session.range(0, 4 * rows, 1, 4).withColumn("key", functions.col("id") % rows)
        few = self.session.range(rows).select(
            functions.col("id").alias("key"), (functions.col("id") * 3).alias("three")
        )
        joined = many.join(functions.broadcast(few), "key").agg(functions.sum("three"))
        total = joined.collect()[0][0]
        plan = joined._jdf.queryExecution().executedPlan().toString()
        return ["BroadcastHashJoin" in plan, total, 4 * 3 * rows * (rows - 1) // 2]

    def handle(self, name, size, seed):
        """A value by rostrum.spark."""
        import numpy
        from rostrum.spark import RostrumBroadcast

        value = {"bytes": numpy.frombuffer(content(size, seed), dtype=numpy.uint8), "name": name}
        self.values[name] = RostrumBroadcast(self.context, value)
        if self.values[name].way == "spark":
            return ["spark", 0]  # it is one of Spark's, which pickles in closures alone
        return [self.values[name].way, len(pickle.dumps(self.values[name]))]

    def handle_read(self, name, tasks):
        value = self.values[name]

        def look(_):
            held = value.value
            data = held["bytes"]
            yield (
                os.environ.get("ROSTRUM_SOCKET", ""),
                bytes(data[:4]).hex(),
                len(data),
                bool(data.flags.writeable),
                held["name"],
                os.getpid(),
            )

        return self.context.parallelize(range(tasks), tasks).mapPartitions(look).collect()

    def metrics(self):
        """The driver's counters."""
        sources = self.context._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
        found = sources.getSourcesByName("plugin.org.rostrum.spark.RostrumPlugin").head().metricRegistry().getCounters()
        return {name: found.get(name).getCount() for name in found.keySet()}


def content(size, seed):
    import random

    return random.Random(seed).randbytes(size)


def main():
    program = None
    for line in sys.stdin:
        word, *arguments = json.loads(line)
        try:
            if word == "start":
                program = Program(*arguments)
                answer = None
            elif word == "stop":
                program.context.stop()
                answer = None
            else:
                answer = getattr(program, word)(*arguments)
            print("answer " + json.dumps(answer), flush=True)
        except Exception:
            print("error " + json.dumps(traceback.format_exc()[-3000:]), flush=True)


main()
