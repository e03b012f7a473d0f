"""Run by test_spark.py with spark-submit: a value, of which all is said that spark-submit has loaded the plugin for."""

import random
import time

from pyspark import SparkContext

context = SparkContext()
until = time.monotonic() + 90
while not context._jvm.org.rostrum.spark.RostrumPlugin.servers():
    assert time.monotonic() < until, "no executor's plugin has said which server it is on"
    time.sleep(0.1)
value = context.broadcast(random.Random(1).randbytes(4 << 20))
sizes = context.parallelize(range(4), 4).map(lambda _: len(value.value)).collect()
place = context._jvm.org.rostrum.spark.RostrumPlugin.servers()[0]
print("answer", value._jbroadcast.getClass().getSimpleName(), place, *sizes, flush=True)
value.destroy(blocking=True)
context.stop()
