"""Who logs in with a password: the file of users, sessions, and what slows guessing down.

Laws:

1. What the file of users says now holds for the next request: a role that changed, a password that changed, a user who
   was removed. A file that is missing, damaged or readable by others lets nobody in.
2. A session has a new random name at each login, known to one browser and kept here as a digest, in memory. It ends at
   its limits, at the logout, and once the user's entry has another password; no cookie brings an ended one back.
3. An unknown name takes as long as a wrong password, and both get the same answer.
4. Who guesses waits: so many attempts a name at an address, an address, and a name; an attempt counts before its
   password is looked at. A person at another address is not locked out by one that guesses.
5. Memory, hashing at a time and log lines are bounded, whatever is sent. Hashing runs beside the event loop.
6. No password is asked for or taken over unencrypted HTTP, but from a browser that names this machine.
7. No password reaches a log, an error or an argument; neither does an unknown name, which may be one.
"""
