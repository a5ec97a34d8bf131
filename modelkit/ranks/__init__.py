"""Running one model on several machines: who takes part, what they agree on, and the processes themselves.

spawn             starts such processes on this machine
facts             what ranks tell each other about themselves, and where they differ
diagnostics       which packages each has, and how fast links are
hosts             a file of machines
rendezvous        how this process comes to be one of several; `current`: the ranks it is one of, or None
mpi               how a process that MPI has started ends
follower          what a process on a rank above 0 does (`python -m modelkit.ranks`: `__main__`)
rank_group        the ranks that this process is one of: it leads them, or follows
job               a model that they are to run, and its plan
agreement         what they compare before they read their shares
progress          how far all of them are with it
package_transfer  gives each what its store lacks of a package: `rounds` sends blobs, `fetching` takes them
outline           what a rank has that lacks the weights
wants             what it needs of them
slices            gives it that: `passing` on from rank 0, in `pieces`
streaming         weights that rank 0 reads from a registry and passes on
"""
