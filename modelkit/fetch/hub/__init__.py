"""Models of the Hugging Face hub.

    listing         what a repository has at one commit, checked
    quants, choose  which of its files are needed
    library         questions to the server, through huggingface_hub; its errors in our words
    transfer        one file, over as many attempts as it takes
    parts           what came of it so far, hashed as it comes
    cache           huggingface_hub's folder: what is there, and where a new file goes
    parallel        several transfers at a time
    obtain          all of the above for one address

A commit is settled first and everything is asked for by it, so nothing changes in the middle. Sizes are
known, said and compared with the disk before a byte moves. Files land in huggingface_hub's own cache, in its
own layout, so other programs have them too; `org/name` and a second `create` find them there.
"""
