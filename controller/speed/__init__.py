"""What is done for speed alone: without any of it the manager does the same. What each brings is measured as processor
time a request (`rostrum bench manager --only thrift-40-packet`, compiled; medians of runs by turns with and without, on
a busy machine: 5 % is about what can be told). What brings less goes, as remembered names of switches did.

    compiled.py         modules that .ci/compile made native code of are taken instead of Python's: 39 % less
    thrift_request.py   what agents say most, read straight from its bytes, by the IDL's field numbers: 15 %
    thrift_response.py  what they hear most, written straight down: 14 %; of it 5 % for servers' addresses as they were
                        written last
    cache.py            trees and cascades that were found before: 4 to 11 %
    memory.py           the collector of cycles runs seldom: 11 % with ten thousand live paths, nothing with few

What stands with what it belongs to: lines of the log that are no warnings become text once a turn of the loop
(logs.say_all: 7 %), with the time as it was written last (keyvalue.py: 5 %). Up to eight turns of the loop share a
transaction (runtime.py): nothing in processor time, but so many fewer waits for the disk with --journal-sync full.
"""
