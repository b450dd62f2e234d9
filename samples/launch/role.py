"""Says which role the environment gives to this process: fluidtool launch --trainers 2 samples/launch/role.py"""

import os

print(os.environ["TRAINING_ROLE"], os.environ["PADDLE_TRAINER_ID"], "of", os.environ["PADDLE_TRAINERS_NUM"])
